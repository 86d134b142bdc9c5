"""How the problem is solved, proved, checked and shown."""
