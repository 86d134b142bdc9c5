"""Searches for steps of mixed sequence lengths: dispatch of sequences to replicas."""
