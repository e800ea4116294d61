"""Sources of results: live profiles, recorded traces, named ranges, work rules."""
