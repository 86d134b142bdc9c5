"""Lower bounds of the step time, each with its proof."""
