"""A policy as anybody may ship one: whether the partitions of a Kafka cluster are replicated as they should be."""

from .registration import KIND

__all__ = ["KIND"]
