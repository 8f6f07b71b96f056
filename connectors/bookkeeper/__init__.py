"""BookKeeper clusters, as their metadata in ZooKeeper has them."""
