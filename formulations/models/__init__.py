"""One formulation per decision, for CP-SAT and for MILP."""
