"""Views: formats of results. They choose units and compute nothing else."""
