"""What a user runs today, read from his launch files and judged as a plan."""
