"""The results of a comparison: their file, questions to it, the page, and tables in documents."""
