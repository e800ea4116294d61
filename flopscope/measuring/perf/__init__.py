"""Performance assertions in tests: limits, their verdicts and the runs that are stored."""
