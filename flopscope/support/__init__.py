"""Helpers that are independent of profiling: files, progress bars, libraries, number formatting."""
