"""BookKeeper clusters: their metadata in ZooKeeper, and the copier of ledgers."""
