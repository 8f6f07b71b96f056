"""Prometheus: what the loop observes and decides, as metrics over HTTP."""

from connectors.exporter.exporter import Exporter
from connectors.exporter.http import Check, MetricsServer

__all__ = ["Check", "Exporter", "MetricsServer"]
