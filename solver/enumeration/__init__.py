"""The fast exact engine for the split of one shape; no solver library."""
