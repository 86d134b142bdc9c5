"""Checks of plans and proofs that share no code with models or search."""
