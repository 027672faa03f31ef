"""What `explain` shows of compiled programs: a text, and a page."""
