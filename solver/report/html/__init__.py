"""A plan as one self-contained page: HTML, style, script and figures in one file."""
