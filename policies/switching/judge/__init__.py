"""The transition table of a switch: `table` has its rows, `guards` their conditions, `invariants` what must hold after.

Where to look: `commands` has those about clusters and those that carry a switch forward, `undo` those that lead out of
it; `events` judges reports, `stages` has the automatic progress, and `table` also finds the holds of a switch.
"""
