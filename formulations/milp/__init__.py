"""MILP models of the planning problem, through PuLP: twins of the CP-SAT models."""
