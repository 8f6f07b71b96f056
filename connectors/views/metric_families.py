"""Builds the exposition of a scrape from plain samples.

No gauge of the client library keeps them, so a series disappears together with its sample.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString


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


class Histogram:
    """Counts values by upper bound, for each combination of labels.

    The client library's histogram would add a useless ``_created`` series to each.
    """

    def __init__(self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float]) -> None:  # noqa: A002
        self._name = name
        self._help = help
        self._labels = tuple(labels)
        self._bounds = (*bounds, float("inf"))
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def add(self, labels: tuple[str, ...], value: float) -> None:
        """Count a value; a bound includes equal values."""
        counts = self._counts.setdefault(labels, [0] * len(self._bounds))
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def forget(self, labels: tuple[str, ...]) -> None:
        """Drop the counts of a combination of labels."""
        self._counts.pop(labels, None)
        self._sums.pop(labels, None)

    def metric(self) -> Metric:
        """Make the metric."""
        metric = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        for labels, counts in sorted(self._counts.items()):
            buckets = list(zip(map(floatToGoString, self._bounds), accumulate(counts), strict=True))
            metric.add_metric(labels, buckets, self._sums[labels])
        return metric

    @property
    def is_empty(self) -> bool:
        """Whether it has no count yet."""
        return not self._counts
