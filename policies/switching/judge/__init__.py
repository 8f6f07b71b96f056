"""The transition table of a switch: `table` has its rows, `guards` their conditions, `invariants` what must hold after.

Where to look: `commands` has those about clusters and those that carry a switch forward, `stages` the automatic
progress and the ways out; `events` judges reports, and `table` also finds the holds of a switch.
"""
