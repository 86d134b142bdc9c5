"""Search over shapes: bounds, best bound first, until the gap is closed."""
