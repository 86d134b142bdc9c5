"""Pipelines for all nodes: instantiation, batch distribution, recovery (Oobleck, SOSP 2023)."""
