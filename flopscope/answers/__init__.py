"""Answers: where the time of a profile went, what it could be, and what to change first."""
