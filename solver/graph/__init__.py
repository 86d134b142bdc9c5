"""A configuration as a layered graph: an edge is a stage, a path a plan."""
