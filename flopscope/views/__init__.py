"""Views: each formats an EventTable and computes nothing but a unit."""
