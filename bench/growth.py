"""Decides whether a process's resources grow while it works: levels and slopes of samples, compared with limits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

Sample = tuple[float, dict[str, float]]
"""Seconds since the beginning, and values by name."""

WARM_UP_SHARE = 1 / 3
"""Warm-up of each life: classes are compiled, trends fill up, the heap reaches its size."""
LEAST_JUDGED_SECONDS = 600.0
"""Minimum after the warm-up; a slope over less time does not predict an hour."""


@dataclass(frozen=True)
class Limit:
    """The allowed growth in an hour: this share of the level or, for small levels, this amount."""

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
"""The unit by the end of a resource's name. One leaked thing a minute is sixty an hour."""


@dataclass
class Life:
    """The samples from a start to the end: (seconds since the soak began, values by name)."""

    began: float
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def settled(self) -> list[tuple[float, dict[str, float]]]:
        """The samples after the warm-up."""
        end = self.samples[-1][0]
        return [sample for sample in self.samples if sample[0] >= self.began + WARM_UP_SHARE * (end - self.began)]

    def series(self, name: str) -> list[tuple[float, float]]:
        """One resource after the warm-up."""
        return [(seconds, values[name]) for seconds, values in self.settled() if name in values]


@dataclass(frozen=True)
class Growth:
    """The level and growth of one resource in one life."""

    level: float
    an_hour: float
    limit: float

    @property
    def is_bounded(self) -> bool:
        """Whether it grows by less than its limit."""
        return self.an_hour <= self.limit


def growth(life: Life, name: str) -> Growth:
    """From the median of the first half to that of the second: neither a peak nor a saw-tooth counts as growth."""
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
    """Return a Markdown table with a row for each resource: level and growth in both lives."""
    yield "| | before the kill | an hour adds | after it | an hour adds | limit | |"
    yield "|---" * 7 + "|"
    for name, (first, second) in growths.items():
        said = "bounded" if first.is_bounded or second.is_bounded else "**grows**"
        yield (
            f"| {name} | {first.level:,.0f} | {first.an_hour:+,.1f} | {second.level:,.0f} | {second.an_hour:+,.1f} "
            f"| {second.limit:,.0f} | {said} |"
        )


def work(lives: Sequence[Life]) -> Iterator[str]:
    """Return the loop's throughput during the soak."""
    yield "| | before the kill | after it |"
    yield "|---|---|---|"
    for name, of in (("records decided on a second", mean), ("batch, ms", median), ("lag, s", max)):
        middle = {mean: "mean", median: "median", max: "most"}[of]
        values = [of([value for _, value in life.series(name)] or [0.0]) for life in lives]
        yield f"| {name}, {middle} | {values[0]:,.1f} | {values[1]:,.1f} |"


def verdict(growths: Mapping[str, Sequence[Growth]], lives: Sequence[Life]) -> int:
    """Print the verdict; return the exit status."""
    judged = min(life.samples[-1][0] - life.settled()[0][0] for life in lives)
    # A leak shows in each life; pools and heaps grow to their size in only one.
    growing = [name for name, both in growths.items() if not any(each.is_bounded for each in both)]
    if judged < LEAST_JUDGED_SECONDS:
        print(f"\ntoo short to judge: {judged:.0f} s after the warm-up, {LEAST_JUDGED_SECONDS:.0f} s are needed")
        return 0
    print(f"\ngrows beyond its limit: {', '.join(growing)}" if growing else "\nall is bounded")
    return 1 if growing else 0
