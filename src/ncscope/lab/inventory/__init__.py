"""The content of the five papers, item by item, and where each item lives in this project."""
