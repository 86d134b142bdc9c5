"""Search over configurations: bounds, best bound first, until the gap is closed."""
