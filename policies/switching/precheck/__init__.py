"""Is it safe to switch from one BookKeeper cluster to another: judged from a snapshot of both, and from nothing else.

Unknown means not ready. The report rests on four of the invariants: what is imported is absent in the target or ours
(INV-1), the target will only give ids beyond all that the source has given or will give (INV-2), the two are not one
cluster under two names, and their layouts can hold the ids (INV-4), no deleted id is created again (INV-6).

Where to look: what was read in `snapshot`, what is wrong with it and what to do about that in `findings`, the report
and its form on the wire in `report`.
"""
