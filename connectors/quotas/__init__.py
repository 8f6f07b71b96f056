"""The quota actuator: carries the throttle decisions out with Kafka's own client quotas."""

from connectors.quotas.actuator import QuotaActuator
from connectors.quotas.reports import QuotaMetrics
from connectors.quotas.worker import WatchedQuotas

__all__ = ["QuotaActuator", "QuotaMetrics", "WatchedQuotas"]
