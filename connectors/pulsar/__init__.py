"""Pulsar's admin REST API, and its metadata in ZooKeeper."""
