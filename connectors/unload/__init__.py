"""The Pulsar actuator: unloads bundles, and has them owned again, as the sessions policy decides."""

from connectors.actuation import Loop
from connectors.unload.actuator import UnloadActuator
from connectors.unload.cluster import WatchedUnloads
from connectors.unload.metrics import UnloadMetrics
from connectors.unload.settings import UnloadSettings

__all__ = ["Loop", "UnloadActuator", "UnloadMetrics", "UnloadSettings", "WatchedUnloads"]
