"""docs/reference/metrics.md: the metrics that every part of the loop registers, obtained from the parts themselves."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from connectors.alertmanager.notifier import NotifierMetrics
from connectors.bookie_disks.publishing import PublishMetrics
from connectors.collection import PollMetrics
from connectors.exporter.exporter import Exporter
from connectors.http.tls import Certificates
from connectors.isolation.quarantine import QuarantineMetrics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import PublisherMetrics
from connectors.partitions.membership import PartitionMetrics
from connectors.sessions.unload import UnloadMetrics
from connectors.switching.lease import SwitchExecutorMetrics
from connectors.throttle.quotas.reports import QuotaMetrics
from deploy.processes.renewal import renewal_gauge
from deploy.query.supervisor import QueryHealth
from deploy.settings.application import Settings
from tools.reference.shapes import code, table

_INTRODUCTION = """\
# Metrics

`make generate` writes this page from the registered metrics; `make check` fails when it is stale.

Every process serves them at `/metrics` (`http.host`, `http.port`), with the Prometheus client's metrics of a Python
process (`process_*`, `python_*`). A counter's name ends in `_total`. A histogram has the series `_bucket` (with
the label `le`), `_sum` and `_count`. The series of a volume or cluster disappear with it.
"""


class MetricRow(NamedTuple):
    """One metric family."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


class _Recorder(CollectorRegistry):
    """A registry that records all registered metrics, with samples or without."""

    def __init__(self) -> None:
        super().__init__(auto_describe=True)
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.collectors.append(collector)


def metrics_page() -> str:
    """Return the whole page."""
    lines = [_INTRODUCTION]
    for part, families in parts().items():
        body = ((code([m.name]), m.type, code(m.labels), m.help) for m in families)
        lines += [f"## {part}\n", *table(("name", "type", "labels", "meaning"), body)]
    return "\n".join(lines)


def parts() -> dict[str, list[MetricRow]]:
    """Return the metrics of each part by its name."""
    nowhere = KafkaConnection(bootstrap_servers="127.0.0.1:9092")  # no part connects before it runs
    exporter = partial(Exporter, nowhere, "headgate", {}, settings_hash="")
    registering = {"The exporter": lambda registry: exporter(registry=registry), **other_parts()}
    return {part: sorted(_list_registered(register)) for part, register in registering.items()}


def other_parts() -> dict[str, Callable[[CollectorRegistry], object]]:
    """Return the functions that register metrics, by part, except the exporter's."""
    return {
        "The query": lambda registry: QueryHealth(registry, stall_seconds=60.0),
        "The Alertmanager connector": NotifierMetrics,
        "The collectors": PollMetrics,
        "The quota actuator": QuotaMetrics,
        "The quarantine actuator": QuarantineMetrics,
        "The unload actuator": UnloadMetrics,
        "The switching executor": SwitchExecutorMetrics,
        "The publish actuator": PublishMetrics,
        "What processes share": PartitionMetrics,
        "The publisher": PublisherMetrics,
        "The settings": renewal_gauge,
        "Each process": lambda registry: registry.register(Certificates(Settings())),
    }


def _list_registered(register: Callable[[CollectorRegistry], object]) -> Iterator[MetricRow]:
    recorder = _Recorder()
    register(recorder)
    for collector in recorder.collectors:
        for metric in collector.describe():  # type: ignore[attr-defined]  # of all that is registered here
            # The client library shows labels only with samples, and there are none yet.
            labels: Any = getattr(metric, "_labelnames", None) or getattr(collector, "_labelnames", ())
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            yield MetricRow(name, metric.type, tuple(labels), metric.documentation)
