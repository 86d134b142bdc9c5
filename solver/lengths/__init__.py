"""Searches for steps of mixed sequence lengths: strategies, thresholds, orders, shares."""
