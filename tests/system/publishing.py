"""The publish actuator's worker, without the loop."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from connectors.bookie_disks.publishing.limits import BrokerLimits, NamespaceLimits, PublishAdmin, ResourceGroupLimits
from connectors.bookie_disks.publishing.reports import PublishMetrics
from connectors.bookie_disks.publishing.worker import PublishWorker
from connectors.pulsar.connection import PulsarAdmin
from policies.bookie_disks.publish_settings import PublishSettings
from policies.bookie_disks.publish_state import PublishState
from policies.decisions import Mode
from policies.free_space.orders import FactorOrder
from tests.policies.bookie_disks.scenario import settings

KINDS: Mapping[str, Any] = {"broker": BrokerLimits, "namespace": NamespaceLimits, "resource_group": ResourceGroupLimits}


def slow_order(factor: float) -> FactorOrder:
    """A decision about all bookies that holds for an hour."""
    now = datetime.now(UTC)
    return FactorOrder("messaging", "messaging/default", "d1", 1, factor, Mode.ACTIVE, now, now + timedelta(hours=1))


def _ignore(*_: object) -> None:
    """Nobody reads the reports and readings."""


@contextmanager
def publish_worker(
    pulsar: PulsarAdmin, by: str, base: int, floor: int = 65_536, observe: Callable[[PublishState], None] = _ignore
) -> Iterator[PublishWorker]:
    """A worker of one kind of limits; its reports go nowhere, and its connections are closed at the end."""
    block = PublishSettings.model_validate({"by": by, "base": base, "floor_bytes_per_second": floor})
    with ExitStack() as stack:
        kinds = {name: make(PublishAdmin(pulsar)) for name, make in KINDS.items()}
        for each in kinds.values():
            stack.callback(each.close)
        limits = kinds.pop(by)
        metrics, others = PublishMetrics(CollectorRegistry()), tuple(kinds.values())
        yield PublishWorker("messaging", block, settings(), limits, _ignore, observe, metrics, others)
