"""The results of a comparison: their file, figures derived from them, the page, and tables in documents."""
