"""The Pulsar actuator: unloads bundles, and has them owned again, as the sessions policy decides."""

from connectors.unload.actuator import UnloadActuator
from connectors.unload.brokers import UnloadSettings
from connectors.unload.reports import UnloadMetrics
from connectors.unload.worker import WatchedUnloads

__all__ = ["UnloadActuator", "UnloadMetrics", "UnloadSettings", "WatchedUnloads"]
