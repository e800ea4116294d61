"""Live recording: profiles, ranges, graphs, and what other libraries launch."""
