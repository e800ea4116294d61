"""Advice tried on the user's own program: changes are switched on, and steps with and without are timed in turns."""
