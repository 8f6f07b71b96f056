"""The unload actuator: unloads bundles, or has them owned again, as the sessions policy decides."""

from connectors.sessions.unload.brokers import UnloadSettings
from connectors.sessions.unload.reports import UnloadMetrics
from connectors.sessions.unload.worker import UnloadActuator, WatchedUnloads

__all__ = ["UnloadActuator", "UnloadMetrics", "UnloadSettings", "WatchedUnloads"]
