"""The quota actuator: carries the throttle decisions out with Kafka's own client quotas."""

from connectors.quotas.actuator import Loop, QuotaActuator
from connectors.quotas.cluster import WatchedQuotas
from connectors.quotas.metrics import QuotaMetrics

__all__ = ["Loop", "QuotaActuator", "QuotaMetrics", "WatchedQuotas"]
