"""On random histories, the factors are those of the rules; neither the cut into steps nor restarts change them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest

from policies.bookie_disks.decisions import BookieThrottle
from policies.bookie_disks.policy import BookieDisksPolicy
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksState
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies, NamespaceAffinity
from policies.free_space.limits import Limit
from policies.observations import Observation, Outcome
from tests.examples import seeds
from tests.policies.bookie_disks.scenario import CLUSTER, NO_PATIENCE, TOTAL, Run, disks, failed, settings
from tests.policies.cases_of_bookies import affinity, racks, registered
from tests.policies.virtual_run import START

_GROUPS = ("g0", "g1", "g2")

_Placed = tuple[int, frozenset[str]]
"""The largest ensemble of some namespaces, and their secondary groups."""


@dataclass
class _Dir:
    seen: float
    free: int | None = None
    read: float | None = None
    gone: float | None = None


@dataclass
class _Bookie:
    read: float | None = None
    missing: float | None = None
    is_read_only: bool = False
    dirs: dict[str, _Dir] = field(default_factory=dict)


class Model:
    """The factor of each group, without a gate and without a trend. Seconds count from the start."""

    def __init__(self, block: BookieDisksSettings) -> None:
        self._settings = block
        self._validity = block.validity.total_seconds()
        self._bookies: dict[str, _Bookie] = {}
        self._members: set[tuple[str, str]] = set()
        self._doubtful_members: set[tuple[str, str]] = set()
        self._placed: dict[tuple[str, ...], _Placed] = {}
        self._doubtful_placed: dict[tuple[str, ...], _Placed] = {}
        self.factors: dict[str, float] = {}
        self._too_few: dict[str, bool] = {}
        """The groups that too few bookies stop, and whether disks had stopped them before."""
        self._begun: float | None = None

    def read(self, seen: Observation) -> None:
        second = (seen.at - START).total_seconds()
        if isinstance(seen.reading, BookieDisks):
            self._begun = second if self._begun is None else min(self._begun, second)
        match seen.reading:
            case BookieRacks() as reading:
                read = {(name, bookie) for name, members in (reading.groups or {}).items() for bookie in members}
                self._doubtful_members = self._members - read - self._doubtful_members
                self._members = read | self._doubtful_members
            case BookieAffinity() as reading:
                self._read_affinity(reading)
            case Bookies() as reading:
                self._register(second, reading)
            case BookieDisks(outcome=Outcome.OK) as reading:
                self._read_disks(second, reading)
            case BookieDisks() as reading:
                self._bookies.setdefault(reading.bookie, _Bookie())

    def _read_affinity(self, reading: BookieAffinity) -> None:
        read: dict[tuple[str, ...], _Placed] = {}
        for each in reading.namespaces.values():
            primary = () if "*" in each.primary else tuple(sorted(each.primary))
            ensemble, secondary = read.get(primary, (0, frozenset()))
            others = {*each.secondary} - {*primary} if primary else set()
            read[primary] = (max(ensemble, each.ensemble_size or 0), secondary | others)
        self._doubtful_placed = {
            primary: (max(ensemble, read.get(primary, (0,))[0]), secondary.union(*read.get(primary, ())[1:]))
            for primary, (ensemble, secondary) in self._placed.items()
            if primary not in self._doubtful_placed
            and (primary not in read or read[primary][0] < ensemble or not read[primary][1] >= secondary)
        }
        self._placed = read | self._doubtful_placed

    def _read_disks(self, second: float, reading: BookieDisks) -> None:
        bookie = self._bookies.setdefault(reading.bookie, _Bookie())
        bookie.read, bookie.missing, bookie.is_read_only = second, None, reading.read_only
        reported = {each.log_dir: each for each in reading.dirs}
        for name, each in reported.items():
            known = bookie.dirs.setdefault(name, _Dir(second))
            known.gone = None
            if each.readable:
                known.free, known.read = each.usable_bytes, second
        for name in bookie.dirs.keys() - reported.keys():
            if bookie.dirs[name].gone is None:
                bookie.dirs[name].gone = second

    def _register(self, second: float, reading: Bookies) -> None:
        writable, read_only = ({each.bookie for each in kind} for kind in (reading.writable, reading.read_only))
        for name in writable | read_only:
            bookie = self._bookies.setdefault(name, _Bookie())
            bookie.missing = None
            if bookie.read is None or bookie.read < second:
                bookie.is_read_only = name in read_only
        for name in self._bookies.keys() - writable - read_only:
            bookie = self._bookies[name]
            if bookie.read is not None and bookie.read >= second:
                continue
            if bookie.missing is not None:
                del self._bookies[name]
            else:
                bookie.missing = second

    def judge(self, second: float) -> dict[str, float]:
        """Return the factor of each group at some second."""
        known = {name: self._judge_bookie(bookie, second) for name, bookie in self._bookies.items()}
        is_early = self._begun is None or second < self._begun + self._validity
        groups = self._place().items()
        self.factors = {name: self._judge_group(name, group, known, is_early=is_early) for name, group in groups}
        return self.factors

    def _judge_bookie(self, bookie: _Bookie, second: float) -> float | None:
        factors = {name: self._judge_dir(each, second) for name, each in bookie.dirs.items()}
        for name, factor in factors.items():
            if factor is None and bookie.dirs[name].gone is not None:
                del bookie.dirs[name]
        has_sizes = any(each.read is not None for each in bookie.dirs.values())
        if bookie.is_read_only:
            return None if bookie.read is None else 0.0
        return min(factor for factor in factors.values() if factor is not None) if has_sizes else None

    def _judge_dir(self, each: _Dir, second: float) -> float | None:
        fallback = self._settings.fallback_factor
        if each.read is None or each.free is None:
            return fallback if each.gone is None and second >= each.seen + self._validity else None
        factor = self._judge_space(each.free)
        is_stale = (second if each.gone is None else each.gone) - each.read >= self._validity
        factor = min(factor, fallback) if is_stale else factor
        held = self._settings.departed_hold.total_seconds()
        counts = each.gone is None or (factor < 1.0 and second < each.gone + held)
        return factor if counts else None

    def _judge_space(self, free: int) -> float:
        soft, hard = self._settings.soft, self._settings.hard
        low, high = (_in_bytes(limit) for limit in (hard, soft))
        if hard is not None and free <= low:
            return 0.0
        return min(1.0, (free - low) / (high - low)) if soft is not None and low < high else 1.0

    def _place(self) -> dict[str, tuple[int, set[str], set[str]]]:
        """Return the ensemble, the bookies and the secondary bookies of each group."""
        found = {"default": (self._settings.ensemble, set(self._bookies), set[str]())}
        for primary, (least, secondary) in self._placed.items():
            name = ",".join(primary) if self._members else ""
            ensemble, first, second = found.get(name or "default", (self._settings.ensemble, set(), set()))
            if name:
                first, second = ({b for g, b in self._members if g in groups} for groups in (primary, secondary))
            found[name or "default"] = (max(ensemble, least), first, second)
        return found

    def _judge_group(
        self, name: str, group: tuple[int, set[str], set[str]], known: Mapping[str, float | None], *, is_early: bool
    ) -> float:
        ensemble, first, second = group
        chosen = {bookie: known[bookie] for bookie in first if bookie in known}
        if sum(factor is not None for factor in chosen.values()) < ensemble:
            chosen |= {bookie: known[bookie] for bookie in second if bookie in known}
        ranked = sorted((factor for factor in chosen.values() if factor is not None), reverse=True)
        if len(ranked) >= ensemble:
            self._too_few.pop(name, None)
            return ranked[ensemble - 1]
        unread = sum(factor is None and not self._bookies[bookie].is_read_only for bookie, factor in chosen.items())
        is_premature = is_early and self._too_few.get(name) is False
        if len(ranked) + unread < ensemble or (name in self._too_few and not is_premature):
            self._too_few.setdefault(name, self.factors.get(name) == 0.0)
            return 0.0
        self._too_few.pop(name, None)
        return min(self._settings.fallback_factor, 1.0 if is_premature else self.factors.get(name, 1.0), *ranked)


def _in_bytes(limit: Limit | None) -> float:
    if limit is None:
        return 0.0
    ratio = limit.available_ratio_below
    return ratio * TOTAL if ratio is not None else float(limit.available_bytes_below or 0)


def random_settings(seed: int, **more: Any) -> BookieDisksSettings:
    """Limits of both kinds, or one limit only, with every kind of fallback and hold."""
    random = Random(seed)
    limits = random.choice([(0.2, 0.12), (0.3, 0.05), (0.2, None), (None, 0.12), ("25GB", 0.12), (0.2, "10GB")])
    kinds = {float: "available_ratio_below", str: "available_bytes_below"}
    chosen = {
        **{name: each and {kinds[type(each)]: each} for name, each in zip(("soft", "hard"), limits, strict=True)},
        "fallback_factor": random.choice([1.0, 0.5, 0.0]),
        "validity": random.choice(["100s", "5m"]),
        "departed_hold": random.choice(["0s", "1m", "7m"]),
        "ensemble": random.choice([1, 2, 3]),
    }
    return settings(NO_PATIENCE, {"heartbeat": "10m"}, chosen, more)


def random_polls(seed: int, count: int) -> Iterator[Sequence[Observation]]:
    """Polls of some bookies that fail, fill, lose dirs, turn read-only, leave and come back, in groups that change."""
    random, second = Random(1000 + seed), 0.0
    bookies = [f"k{n}" for n in range(random.choice([3, 5, 7]))]
    yield [disks(second, bookie, 90) for bookie in bookies]
    for _ in range(count):
        second += random.choice([5, 20, 20, 20, 70, 310])
        poll = [_poll_bookie(random, second, bookie) for bookie in bookies if random.random() < 0.75]
        if random.random() < 0.25:
            named = _GROUPS[: random.choice([0, 2, 3])]
            groups = {each: " ".join(random.sample(bookies, random.randint(1, 3))) for each in named}
            poll.append(racks(second, groups))
        if random.random() < 0.25:
            names = [f"t/n{n}" for n in range(random.choice([0, 1, 3, 6]))]
            poll.append(affinity(second, {name: _place_namespace(random) for name in names}))
        if random.random() < 0.4:
            writable = [bookie for bookie in bookies if random.random() < 0.85]
            others = [bookie for bookie in bookies if bookie not in writable and random.random() < 0.3]
            poll.append(registered(second, " ".join(writable), " ".join(others)))
        yield poll or [failed(second, bookies[0])]


def _poll_bookie(random: Random, second: float, bookie: str) -> Observation:
    if random.random() < 0.12:
        return failed(second, bookie, random.choice([Outcome.TIMEOUT, Outcome.ERROR]))
    dirs = random.sample(["/l", "/m", "/n"], random.choice([1, 1, 2, 3]))
    free = {each: random.choice([None, 1, 5, 10, 11, 12, 13, 15, 18, 20, 22, 26, 60]) for each in dirs}
    return disks(second, bookie, free, read_only=random.random() < 0.08)


def _place_namespace(random: Random) -> NamespaceAffinity:
    primary = tuple(random.sample([*_GROUPS, "*"], random.choice([0, 1, 1, 2])))
    secondary = tuple(random.sample(_GROUPS, random.choice([0, 0, 1]))) if primary else ()
    return NamespaceAffinity(primary=primary, secondary=secondary, ensemble_size=random.choice([None, None, 1, 2, 4]))


HISTORIES = pytest.mark.parametrize("seed", seeds(0.5))


def in_force(run: Run) -> Mapping[str, float]:
    """The factor of each group that has not ended."""
    last = {each.group: each for each in run.published if isinstance(each, BookieThrottle)}
    return {group: each.factor for group, each in last.items() if each.reason != "group_ended"}


@HISTORIES
def test_each_factor_is_that_of_the_rules(seed: int) -> None:
    block = random_settings(seed, anticipate=False)
    run, model = Run(block), Model(block)
    for poll in random_polls(seed, 20):
        before = len(run.steps)
        run.together(*poll)
        for now, _ in run.steps[before:-1]:  # woken before the poll
            model.judge((now - START).total_seconds())
        for seen in sorted(poll, key=lambda seen: isinstance(seen.reading, BookieDisks), reverse=True):
            model.read(seen)
        expected = model.judge((run.steps[-1][0] - START).total_seconds())
        assert in_force(run) == pytest.approx(expected)


@HISTORIES
def test_restarts_order_repetition_and_the_order_of_dirs_change_no_decision(seed: int) -> None:
    block, random = random_settings(seed, min_hold="30s", recovery_margin=0.1, stop_time="2s"), Random(seed)
    plain, other = Run(block), Run(block)
    for poll in random_polls(seed, 20):
        plain.together(*poll)
        turned = [turn_dirs(seen) for seen in (*poll, *random.sample(poll, len(poll) // 2))]
        random.shuffle(turned)
        other.together(*turned)
        restart(other, block)
    assert other.until(20_000).published == plain.until(20_000).published


def turn_dirs(seen: Observation) -> Observation:
    reading = seen.reading
    if not isinstance(reading, BookieDisks):
        return seen
    return Observation(seen.id, seen.at, reading.model_copy(update={"dirs": reading.dirs[::-1]}))


def restart(run: Run, block: BookieDisksSettings) -> None:
    """Continue from the stored bytes in another process."""
    stored = msgspec.msgpack.encode(run.state)
    run.state, run.policy = msgspec.msgpack.decode(stored, type=BookieDisksState), BookieDisksPolicy(CLUSTER, block)


@HISTORIES
def test_no_factor_rises_sooner_or_in_silence(seed: int) -> None:
    """A rise comes `min_hold` after the last change, and never with failed readings alone, but at the start."""
    run = Run(random_settings(seed, min_hold="30s", recovery_margin=0.1, anticipate=False))
    for poll in random_polls(seed, 20):
        run.together(*poll)
        if all(isinstance(seen.reading, BookieDisks) and seen.reading.outcome != "ok" for seen in poll):
            decided = [each for each in run.steps[-1][1].decisions if isinstance(each, BookieThrottle)]
            assert all(each.verdict != "raise" or each.reason == "initial" for each in decided)
    for group in {each.group for each in run.published if isinstance(each, BookieThrottle)}:
        decided = run.decided(group)
        pairs = pairwise(decided)
        changes = [(b.decided_at - START, a, b) for a, b in pairs if a.factor != b.factor]
        for (earlier, *_), (later, last, risen) in pairwise(changes):
            is_free = last.reason in ("too_few_bookies", "group_ended") or risen.reason == "group_ended"
            is_free |= last.previous_factor is None  # the first decision on a group has not changed its factor
            assert is_free or risen.factor < last.factor or (later - earlier).total_seconds() >= 30


HISTORIES = pytest.mark.parametrize("seed", seeds(1))
GROUPS = {"g1": "b0 b1 b2", "g2": "b3 b4"}
NAMESPACES = {"a/one": "g1", "a/two": "g2", "a/three": ""}
STEADY = {"heartbeat": "1h"}
BOOKIES = [f"b{n}" for n in range(5)]
Poll = list[Observation]


def history(seed: int) -> list[Poll]:
    """Some polls of five bookies with two dirs each, with failures, read-only times and departures."""
    random, polls = Random(seed), []
    for number in range(8):
        second = 20 * number
        poll: Poll = [racks(second, GROUPS), affinity(second, NAMESPACES)] if number in (0, 4) else []
        there = [b for b in BOOKIES if random.random() < 0.95]
        poll.append(registered(second, " ".join(there)))
        for bookie in there:
            if random.random() < 0.1:
                poll.append(failed(second, bookie, Outcome.TIMEOUT))
            else:
                dirs: dict[str, int | None] = {f"/{d}": random.choice([2, 11, 13, 15, 18, 25, 60]) for d in "xy"}
                poll.append(disks(second, bookie, dirs, read_only=random.random() < 0.05))
        polls.append(poll)
    return polls


@HISTORIES
def test_the_cut_into_batches_does_not_change_what_is_in_force_in_the_end(seed: int) -> None:
    polls = history(seed)
    whole, pieces = Run(settings(STEADY, NO_PATIENCE)), Run(settings(STEADY, NO_PATIENCE))
    for poll in polls:
        whole.together(*poll)
        pieces.feed(poll)
    whole.until(600)
    pieces.until(600)
    for group in ("default", "g1", "g2"):
        assert pieces.verdict(group)[0] == whole.verdict(group)[0]


@HISTORIES
def test_one_more_bookie_with_room_never_lowers_a_factor(seed: int) -> None:
    plain, more = Run(settings(STEADY, NO_PATIENCE)), Run(settings(STEADY, NO_PATIENCE))
    for number, poll in enumerate(history(seed)):
        plain.together(*poll)
        second = 20 * number
        more.together(*(with_one_more(o) for o in poll), disks(second, "b9", 90))
        for group in ("default", "g1", "g2"):
            assert more.last(group).factor >= plain.last(group).factor


def with_one_more(observation: Observation) -> Observation:
    """The same reading, in which b9 is registered and in both groups."""
    text = observation.reading.model_dump_json()
    text = text.replace('"b0":{', '"b9":{"rack":null},"b0":{').replace('"b3":{', '"b9":{"rack":null},"b3":{')
    text = text.replace('"writable":[', '"writable":[{"bookie":"b9"},')
    return Observation(observation.id, observation.at, type(observation.reading).model_validate_json(text))
