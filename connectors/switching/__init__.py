"""The I/O of the switching policy: the executor of its orders, metrics and page section.

All writes are conditional. `io` makes the executor, which follows the decisions. A `reconciler` for each broker cluster
holds the lease of its `registry`, publishes `readings`, and has orders carried out by the registry and by
`ledger_orders`, which copies ledgers and writes their `attribution`.
"""
