"""Matrix products, with the ops after their results."""
