"""What was measured: steps that correct an instance's layer times, and layers measured here."""
