"""The switching policy: moves the brokers of a cluster to another BookKeeper cluster at run time, safely.

Data flows through `readings` (the wire in), `fold` and `inventory` (read models, kept in `state`), `facts` (the read
models joined, as of now), `judge` (the rows of the table, which write to a `transition`), `machine` (one reading after
the other), `emit` (orders and records: `decisions`, the wire out) and `alerts`. `policy` hosts it. `precheck` judges a
snapshot of two clusters on its own. `clusters` and `ledgers` have the terms of BookKeeper and Pulsar.
"""

NAME = "switching"
