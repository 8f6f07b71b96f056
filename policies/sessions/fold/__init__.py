"""Folds readings into small read models, one module per kind of reading; there are no rules here.

Each reading is folded by the module of its kind (`sessions`, `health`, `reports`, `sources`, `nodes`). Then `claims`
derives who claims which bundle: it reads the other models, and none of them reads it. `cluster` holds them all.
"""
