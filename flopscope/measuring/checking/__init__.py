"""check(): whether a kernel computes what a reference does, and how their times compare."""
