"""The quota actuator: carries the throttle decisions out with Kafka's own client quotas."""

from connectors.throttle.quotas.actuator import QuotaActuator
from connectors.throttle.quotas.reports import QuotaMetrics, QuotaOutlets
from connectors.throttle.quotas.worker import QuotaWorker, WatchedQuotas

__all__ = ["QuotaActuator", "QuotaMetrics", "QuotaOutlets", "QuotaWorker", "WatchedQuotas"]
