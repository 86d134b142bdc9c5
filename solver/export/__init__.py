"""From a plan to the files with which a framework launches it: one module per target."""
