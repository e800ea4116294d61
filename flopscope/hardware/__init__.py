"""Devices: what they are, their datasheets and measured peaks, and the collectors that see what they do."""
