"""Whether what a process holds grows while it works: levels and slopes of samples, held against limits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

Sample = tuple[float, dict[str, float]]
"""Seconds since the beginning, and values by name."""

WARM_UP_SHARE = 1 / 3
"""Of each life: classes are compiled, trends become whole, the heap finds its size."""
LEAST_JUDGED_SECONDS = 600.0
"""After the warm-up; a slope through less says nothing of an hour."""


@dataclass(frozen=True)
class Limit:
    """How much an hour may add: this share of what there is, or, of what is small, so much."""

    share: float
    slack: float


MEMORY, COUNT, STORED = Limit(0.15, 32.0), Limit(0.05, 20.0), Limit(0.15, 30.0)
LIMITS: Mapping[str, Limit] = {
    "resident, MiB": MEMORY,
    "threads": COUNT,
    "open files": COUNT,
    "sockets": COUNT,
    "checkpoint, MiB": Limit(0.15, 8.0),
    "checkpoint, files": STORED,
    "temporary files": STORED,
}
"""By the end of a resource's name. One thing left behind a minute is sixty an hour."""


@dataclass
class Life:
    """What was sampled from a start to the end: (seconds since the soak began, by name)."""

    began: float
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def settled(self) -> list[tuple[float, dict[str, float]]]:
        """Without its warm-up."""
        end = self.samples[-1][0]
        return [sample for sample in self.samples if sample[0] >= self.began + WARM_UP_SHARE * (end - self.began)]

    def series(self, name: str) -> list[tuple[float, float]]:
        """One resource once it has settled."""
        return [(seconds, values[name]) for seconds, values in self.settled() if name in values]


@dataclass(frozen=True)
class Growth:
    """Of one resource in one life."""

    level: float
    an_hour: float
    limit: float

    @property
    def is_bounded(self) -> bool:
        """Whether it grows by less than its limit."""
        return self.an_hour <= self.limit


def growth(life: Life, name: str) -> Growth:
    """From the median of its first half to that of its second: neither a peak nor a saw-tooth is growth."""
    series = life.series(name)
    limit = next(limit for end, limit in LIMITS.items() if name.endswith(end))
    if len(series) < 2:
        return Growth(series[0][1] if series else 0.0, 0.0, limit.slack)
    middle = (series[0][0] + series[-1][0]) / 2
    (began, early), (ended, late) = (
        (median(at for at, _ in half), median(value for _, value in half))
        for half in ([each for each in series if each[0] <= middle], [each for each in series if each[0] > middle])
    )
    level = median(value for _, value in series)
    return Growth(level, 3600 * (late - early) / (ended - began), max(limit.share * level, limit.slack))


def table(growths: Mapping[str, Sequence[Growth]]) -> Iterator[str]:
    """Markdown: a row a resource, level and growth of both lives."""
    yield "| | before the kill | an hour adds | after it | an hour adds | limit | |"
    yield "|---" * 7 + "|"
    for name, (first, second) in growths.items():
        said = "bounded" if first.is_bounded or second.is_bounded else "**grows**"
        yield (
            f"| {name} | {first.level:,.0f} | {first.an_hour:+,.1f} | {second.level:,.0f} | {second.an_hour:+,.1f} "
            f"| {second.limit:,.0f} | {said} |"
        )


def work(lives: Sequence[Life]) -> Iterator[str]:
    """What the loop did meanwhile."""
    yield "| | before the kill | after it |"
    yield "|---|---|---|"
    for name, of in (("records decided on a second", mean), ("batch, ms", median), ("lag, s", max)):
        middle = {mean: "mean", median: "median", max: "most"}[of]
        values = [of([value for _, value in life.series(name)] or [0.0]) for life in lives]
        yield f"| {name}, {middle} | {values[0]:,.1f} | {values[1]:,.1f} |"


def verdict(growths: Mapping[str, Sequence[Growth]], lives: Sequence[Life]) -> int:
    """Say it; the exit status."""
    judged = min(life.samples[-1][0] - life.settled()[0][0] for life in lives)
    # What is left behind is left behind in each life; pools and heaps find their size in one.
    growing = [name for name, both in growths.items() if not any(each.is_bounded for each in both)]
    if judged < LEAST_JUDGED_SECONDS:
        print(f"\ntoo short to judge: {judged:.0f} s after the warm-up, {LEAST_JUDGED_SECONDS:.0f} s are needed")
        return 0
    print(f"\ngrows beyond its limit: {', '.join(growing)}" if growing else "\nall is bounded")
    return 1 if growing else 0
