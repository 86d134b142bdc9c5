"""Engines that run a native model; the only place that knows their status codes."""
