"""BookKeeper clusters, through their metadata in ZooKeeper."""
