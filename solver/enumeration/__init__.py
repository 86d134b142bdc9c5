"""The fast exact engine for the split of one configuration; no solver library."""
