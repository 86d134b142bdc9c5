"""How the problem is solved, proved, checked and shown; `hetplan` is its Python API."""
