"""Helpers that know nothing of profiling: files, progress bars, libraries, units of text."""
