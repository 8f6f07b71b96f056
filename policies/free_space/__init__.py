"""Slowing writers down while volumes fill up: limits, trend, and the gate. Policies share it; it is no policy."""
