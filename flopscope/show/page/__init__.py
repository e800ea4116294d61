"""The report: one HTML page of a profile, a comparison or a measurement, that opens from disk without a network.

The package lies below ``results``: its modules take profiles, comparisons and measurements as arguments, and call their
public methods. The page draws what they return and computes nothing but units and pixels.
"""
