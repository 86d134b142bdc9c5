"""Pipelines for numbers of nodes: the best template of every size (Oobleck, SOSP 2023)."""
