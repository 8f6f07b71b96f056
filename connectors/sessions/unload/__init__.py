"""The Pulsar actuator: unloads bundles, and has them owned again, as the sessions policy decides."""

from connectors.sessions.unload.actuator import UnloadActuator
from connectors.sessions.unload.brokers import UnloadSettings
from connectors.sessions.unload.reports import UnloadMetrics
from connectors.sessions.unload.worker import WatchedUnloads

__all__ = ["UnloadActuator", "UnloadMetrics", "UnloadSettings", "WatchedUnloads"]
