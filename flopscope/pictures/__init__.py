"""Pictures of results of several kinds: the roofline of a table, measurements, a sweep or a DataFrame."""
