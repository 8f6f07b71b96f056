"""Judges whether a switch from one BookKeeper cluster to another is safe, from a snapshot of both and nothing else.

Unknown means not ready. The report rests on four of the invariants. An imported ledger is absent in the target, or ours
(INV-1). The target gives only ids beyond all that the source gave or may give (INV-2). The two are not one cluster
under two names, and their layouts can hold the ids (INV-4). No deleted id is created again (INV-6).

`snapshot` has the input, `findings` the reasons against a switch with their remedies, `report` the result and its wire
format.
"""
