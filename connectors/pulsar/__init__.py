"""Pulsar's admin REST API, as a source of readings and as a way to act."""
