"""Results: tables, events, summaries and comparisons of what was recorded."""
