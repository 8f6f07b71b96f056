"""The I/O of the switching policy: the executor of its orders, the brokers' agent, metrics and page section.

All writes are conditional. `executor` follows the decisions. A `reconciler` for each broker cluster holds the `lease`,
publishes the readings of `cluster_reader`, and has orders carried out by `registry_orders` (on `registry`) and
`ledger_orders` (with `ledger_copiers` and `attribution`). `broker_agent` runs beside each broker.
"""
