"""Failure traces played through recovery policies (Oobleck, Varuna, Bamboo)."""
