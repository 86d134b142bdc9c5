"""Switch plans: who sends which slices to whom, so that the last arrives soonest."""
