"""Prometheus: what the loop observes and decides, as metrics over HTTP."""

from connectors.prometheus.exporter import Exporter
from connectors.prometheus.http import Check, MetricsServer

__all__ = ["Check", "Exporter", "MetricsServer"]
