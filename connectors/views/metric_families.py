"""Builds the exposition of a scrape from plain samples.

No gauge of the client library keeps them, so a series disappears together with its sample.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric


@dataclass(frozen=True, slots=True)
class Family:
    """A gauge, or a counter if its name ends in ``_total``."""

    name: str
    help: str
    labels: tuple[str, ...]

    def metric(self, samples: Iterable[tuple[tuple[str, ...], float]] = ()) -> Metric:
        """Make the metric with these samples (label values, value)."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        metric = kind(self.name, self.help, labels=self.labels)
        for labels, value in samples:
            metric.add_metric(labels, value)
        return metric


class Sample(NamedTuple):
    """The present value of one series."""

    family: Family
    labels: tuple[str, ...]
    """The values of the family's labels, in their order."""
    value: float


def metrics(samples: Iterable[Sample]) -> Iterator[Metric]:
    """Yield the metric of each family that has a sample."""
    grouped: defaultdict[Family, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
    for family, labels, value in samples:
        grouped[family].append((labels, value))
    for family, rows in grouped.items():
        yield family.metric(rows)
