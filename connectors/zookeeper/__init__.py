"""ZooKeeper, as BookKeeper and Pulsar keep their metadata in it."""
