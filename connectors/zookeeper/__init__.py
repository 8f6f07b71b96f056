"""ZooKeeper with the metadata of BookKeeper and Pulsar."""
