"""The switching policy: moves the brokers of a cluster to another BookKeeper cluster at run time, safely.

Data flows through `readings` (the wire in), `fold` (read models, kept in `state`), `facts` (the read models joined, as
of now), `judge` (the rows of the table, as proposed changes), `machine` (one event after the other; the only writer),
`emit` (orders and records: `decisions`, the wire out) and `alerts`. `policy` hosts it. `precheck` judges a snapshot of
two clusters on its own. `clusters`, `ledgers`, `ledger_paths`, `id_generators` and `references` have the terms of
BookKeeper and Pulsar.
"""

NAME = "switching"
