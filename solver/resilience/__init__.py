"""Training that survives failures: instantiation, batch distribution, recovery (Oobleck)."""
