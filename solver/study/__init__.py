"""The study store: what a search has closed, kept on disk while it runs."""
