"""Devices: their properties, datasheets and measured peaks, and the collectors that record their work."""
