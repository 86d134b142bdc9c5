"""CP-SAT models of the planning problem."""
