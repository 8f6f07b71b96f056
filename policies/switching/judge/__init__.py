"""The transition table of a switch: `table` has its rows, `guards` their conditions, `invariants` what must hold after.

Where to look: `commands` has those about clusters and those that carry a switch forward, `undo` those that lead out of
it; `events` judges what is reported, `stages` has the automatic progress, `table` finds what holds a switch up, too.
"""
