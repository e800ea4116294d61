"""Timing of single calls: measure(), compare_times(), sweep(). perf: limits in tests; trying: changes of programs."""
