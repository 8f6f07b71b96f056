"""Pulsar: its admin REST, as a source of readings and as a way to act."""
