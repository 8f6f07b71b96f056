"""Readings folded into small read models, one module a kind: no rules here.

For each reading: what its kind makes of it (`sessions`, `health`, `reports`, `sources`, `nodes`), and then what follows
for the claims on bundles (`claims`), which reads the others and is read by none. `cluster` holds them all.
"""
