"""Files: each format is read into a store, and a store becomes a Trace."""
