"""Plots that accept several kinds of results: the roofline of a table, measurements, a sweep or a DataFrame."""
