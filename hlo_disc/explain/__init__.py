"""The explanations of compiled programs that `explain` shows: a text, and a page."""
