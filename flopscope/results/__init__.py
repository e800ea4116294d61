"""Results of recorded events: tables, lists of events, summaries and comparisons."""
