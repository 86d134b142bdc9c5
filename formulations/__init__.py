"""What the problem is: instances, costs, plans, schedules and optimisation models."""
