"""The transition table of a switch: `table` has its rows, `guards` their conditions, `invariants` what must hold after.

Where to look: `commands` has the commands that carry a switch forward, `undo` those that lead out of it, `registry`
those about clusters. `observations` judges lease, brokers and inventories, `results` the results of executors, `stages`
the automatic progress.
"""
