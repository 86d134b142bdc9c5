"""What moves when a model goes from one layout on its GPUs to another (HotSPa, SOSP 2024)."""
