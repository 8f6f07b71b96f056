"""The I/O of the switching policy: the executor of its orders, the brokers' agent, metrics and page section.

All writes are conditional. `io` makes the executor, which follows the decisions. A `reconciler` for each broker cluster
holds the `lease`, publishes `readings`, and has orders carried out by `registry` and
`ledger_orders`, which copies ledgers and writes their `attribution`. `broker_agent` runs beside each broker.
"""
