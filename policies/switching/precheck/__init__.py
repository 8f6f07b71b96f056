"""Whether a switch from one BookKeeper cluster to another is safe, judged from a snapshot of both and nothing else.

Unknown means not ready. The report rests on four of the invariants: what is imported is absent in the target or ours
(INV-1), the target will only give ids beyond all that the source has given or will give (INV-2), the two are not one
cluster under two names, and their layouts can hold the ids (INV-4), no deleted id is created again (INV-6).

Where to look: `snapshot` holds what was read, `findings` what is wrong with it and what to do about that, `report` the
report and its wire format.
"""
