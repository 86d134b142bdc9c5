"""From a model and a list of machines to a first instance file."""
