"""The graph itself: values, ops, regions, guards, and the element types of values."""
