"""Sources of results: live profiles, recorded traces, named ranges and work rules."""
