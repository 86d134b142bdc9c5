"""Results and plans as text and pictures."""
