"""Carries out the factors of placement groups by Pulsar's own publish limits.

`limits` reads and sets one kind of limit, `worker` keeps those of one cluster as decided, `actuator` follows decisions.
"""
