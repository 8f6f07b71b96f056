"""The rules `current` against their source: Pulsar's own placement class, asked in a JVM about thousands of cases."""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from deploy.java.jars import ensure_jars
from deploy.java.jvm import find_java
from deploy.settings.application import default_cache_dir
from policies.isolation.decisions import Tier
from policies.isolation.placement import NO_GROUPS, AffinityGroups, BookieMembership, BookieSet, Placed, place
from policies.isolation.settings import RuleSet, Unaffine
from policies.units import UserError

DRIVER = Path(__file__).parent / "reference" / "PlacementReference.java"
RANDOM_CASES = 6_000
SEED = 24_919
BOOKIES = (*(f"bk{number}:3181" for number in range(1, 12)), "a-bookie.by_name")
GROUPS = ("default", "shared", "gold", "silver")
UNKNOWN_GROUP = "no-such-group"
RACKS = ("/r1", "/r2", "/r3", "", "/")
"""The last two are no rack to Pulsar."""
DEEPER_RACK = "/region/r1"
NO_BOOKIE_ID = "bk 99:3181"
DEFAULT_RACK = "/default-rack"


@dataclass(frozen=True)
class Case:
    """A cluster and a namespace in it, as both sides can be asked about them."""

    writable: frozenset[str]
    read_only: frozenset[str]
    groups: Mapping[str, frozenset[str]] | None
    racks: Mapping[str, str]
    """By grouped bookie."""
    affinity: AffinityGroups | None
    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    @property
    def membership(self) -> BookieMembership:
        """What the policy is given."""
        return BookieMembership(self.writable, self.groups or {})

    def placed(self, rules: RuleSet = RuleSet.CURRENT) -> Placed:
        """Our verdict; a namespace without affinity is the broker's strictBookieAffinityEnabled.

        Without that switch a broker does not use the class at all for such a namespace.
        """
        return place(rules, self.membership, self.affinity or NO_GROUPS, self.ensemble_size, Unaffine.UNGROUPED)

    def question(self) -> str:
        """The same for Pulsar, in the driver's form."""
        affinity = self.affinity or NO_GROUPS
        return json.dumps(
            {
                "racks": self._znode(),
                "writable": sorted(self.writable),
                "readOnly": sorted(self.read_only),
                "primary": ",".join(sorted(affinity.primary)),
                "secondary": ",".join(sorted(affinity.secondary)),
                "ensembleSize": self.ensemble_size,
                "writeQuorum": self.write_quorum,
                "ackQuorum": self.ack_quorum,
            }
        )

    def _znode(self) -> str | None:
        if self.groups is None:
            return None
        return json.dumps(
            {
                group: {bookie: {"rack": self.racks[bookie], "hostname": bookie} for bookie in sorted(bookies)}
                for group, bookies in self.groups.items()
            }
        )

    def __str__(self) -> str:
        groups = {group: sorted(bookies) for group, bookies in (self.groups or {}).items()}
        wanted = (sorted(self.affinity.primary), sorted(self.affinity.secondary)) if self.affinity else None
        return (
            f"writable {sorted(self.writable)}, groups {groups if self.groups is not None else None}, "
            f"primary and secondary {wanted}, ensemble {self.ensemble_size}"
        )


@dataclass(frozen=True)
class Answer:
    """What Pulsar's class said."""

    excluded: frozenset[str]
    ensemble: frozenset[str] | None
    """The bookies it chose; None when there were too few."""


Compared = tuple[Case, Answer]


# --- random cases


def random_case(chance: random.Random) -> Case:
    """One case, small enough that groups overlap, run short and die out often."""
    bookies = chance.sample(BOOKIES, max(chance.randint(1, len(BOOKIES)) for _ in range(2)))
    health = chance.choice((0.5, 0.8, 0.9))
    writable = frozenset(bookie for bookie in bookies if chance.random() < health)
    ensemble_size = chance.choice((1, 2, 2, 3, 3, 4, 5))
    write_quorum = chance.randint(1, ensemble_size)
    return Case(
        writable=writable,
        read_only=frozenset(bookie for bookie in bookies if bookie not in writable and chance.random() < 0.3),
        groups=_random_groups(chance, bookies),
        racks=_random_racks(chance),
        affinity=_random_affinity(chance),
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=chance.randint(1, write_quorum),
    )


def _random_groups(chance: random.Random, bookies: Sequence[str]) -> dict[str, frozenset[str]] | None:
    if chance.random() < 0.03:
        return None
    names = chance.sample(GROUPS, chance.choice((0, 1, 2, 2, 3, 3, 4, 4)))
    groups: dict[str, set[str]] = {name: set() for name in names}
    overlap = chance.choice((0.0, 0.0, 0.3))
    for bookie in bookies if names else ():
        if chance.random() < 0.75:  # the others are unassigned
            groups[chance.choice(names)].add(bookie)
            if chance.random() < overlap:
                groups[chance.choice(names)].add(bookie)
    if names and chance.random() < 0.01:
        groups[chance.choice(names)].add(NO_BOOKIE_ID)
    return {name: frozenset(bookies_of) for name, bookies_of in groups.items()}


def _random_racks(chance: random.Random) -> dict[str, str]:
    racks = (*RACKS, DEEPER_RACK) if chance.random() < 0.03 else RACKS
    return {bookie: chance.choice(racks) for bookie in (*BOOKIES, NO_BOOKIE_ID)}


def _random_affinity(chance: random.Random) -> AffinityGroups | None:
    if chance.random() < 0.05:
        return None
    names = (*GROUPS, UNKNOWN_GROUP)
    primary = set(chance.sample(names, 0 if chance.random() < 0.1 else chance.choice((1, 1, 1, 2, 2, 3))))
    secondary = set(chance.sample(names, chance.choice((0, 1, 1, 1, 2))))
    if chance.random() < 0.03:
        chance.choice((primary, secondary)).add("*")
    return AffinityGroups(tuple(sorted(primary)), tuple(sorted(secondary)))


# --- asking Pulsar


@pytest.fixture(scope="module")
def compared(reference: Callable[[Sequence[Case]], list[Answer]]) -> list[Compared]:
    """All random cases with Pulsar's answers."""
    chance = random.Random(SEED)
    cases = [random_case(chance) for _ in range(RANDOM_CASES)]
    return list(zip(cases, reference(cases), strict=True))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Case]], list[Answer]]:
    """Pulsar's class as a function; without Java, its compiler or the network the test says why it must skip."""
    try:
        java = find_java()
        jars = ensure_jars("pulsar-placement", default_cache_dir())
    except UserError as error:
        pytest.skip(str(error))
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True, timeout=120).stdout
    if "jdk.compiler@" not in modules:
        pytest.skip(f"{java} cannot compile the driver: a JDK is needed (Debian/Ubuntu: openjdk-17-jdk-headless)")
    folder = tmp_path_factory.mktemp("reference")
    return lambda cases: _ask(java, jars, folder, cases)


def _ask(java: Path, jars: Sequence[Path], folder: Path, cases: Sequence[Case]) -> list[Answer]:
    # Pulsar resolves each grouped bookie; a hosts file keeps that off the network and makes it quick.
    hosts = folder / "hosts"
    hosts.write_text("".join(f"127.0.1.{number} bk{number}\n" for number in range(1, len(BOOKIES))))
    flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", f"-Djdk.net.hosts.file={hosts}"]
    result = subprocess.run(
        [str(java), *flags, f"-Djava.io.tmpdir={folder}", "-cp", os.pathsep.join(map(str, jars)), str(DRIVER)],
        input="".join(f"{case.question()}\n" for case in cases),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=540,
    )
    assert result.returncode == 0, result.stderr[-4_000:]
    return [_answer(json.loads(line)) for line in result.stdout.splitlines()]


def _answer(said: dict[str, list[str] | None]) -> Answer:
    ensemble = said["ensemble"]
    return Answer(frozenset(said["excluded"] or ()), None if ensemble is None else frozenset(ensemble))


# --- what the rules do not model, on purpose


def racks_differ_in_depth(case: Case) -> bool:
    """Some writable bookies stand in `/region/rack`, others in `/rack`, or in none, which is as deep.

    BookKeeper refuses to learn of a bookie whose rack is not as deep as those it knows: it logs an error and never
    uses the bookie. Which ones it refuses depends on the order in which they came, so no function of the membership
    can tell.
    """
    in_a_group = case.membership.grouped()
    racks = {case.racks[bookie] if bookie in in_a_group else "" for bookie in case.writable}
    return len({(rack.rstrip("/") or DEFAULT_RACK).count("/") for rack in racks}) > 1


def a_member_is_no_bookie_id(case: Case) -> bool:
    """A name in the racks is none that a bookie can have.

    Pulsar's policy stumbles over it, swallows the error, and excludes what it had found so far, if anything: the groups
    are read by name, so which namespaces lose their isolation depends on how the groups are called. Such a name can be
    no registered bookie, and the operator's mistake is not one of placement.
    """
    return NO_BOOKIE_ID in case.membership.grouped()


EXCEPTIONS = (racks_differ_in_depth, a_member_is_no_bookie_id)


# --- comparing


def disagreement(case: Case, answer: Answer, placed: Placed) -> str | None:
    """What differs, readable; None where both agree on who may be used and on whether they suffice."""
    theirs = case.writable - answer.excluded
    if placed.candidates != theirs:
        return f"{case}: ours {sorted(placed.candidates)}, Pulsar's {sorted(theirs)}"
    if placed.feasible != (answer.ensemble is not None):
        return f"{case}: feasible is {placed.feasible} here, and Pulsar chose {answer.ensemble}"
    if answer.ensemble is not None and not answer.ensemble <= placed.candidates:
        return f"{case}: Pulsar chose {sorted(answer.ensemble)}, ours {sorted(placed.candidates)}"
    return None


def disagreements(compared: Sequence[Compared], ours: Callable[[Case], Placed] = Case.placed) -> list[str]:
    """All disagreements of a rule set of ours with Pulsar."""
    found = (disagreement(case, answer, ours(case)) for case, answer in compared)
    return [text for text in found if text is not None]


def ordinary(compared: Sequence[Compared]) -> list[Compared]:
    """Those that fall under no exception."""
    return [pair for pair in compared if not any(exception(pair[0]) for exception in EXCEPTIONS)]


def test_pulsar_agrees_with_the_rules_current_in_thousands_of_cases(compared: list[Compared]) -> None:
    cases = ordinary(compared)
    found = disagreements(cases)
    assert len(cases) > 0.9 * RANDOM_CASES > 5_000
    assert not found, f"{len(found)} of {len(cases)} cases disagree, among them:\n" + "\n".join(found[:8])


@pytest.mark.parametrize("exception", EXCEPTIONS, ids=lambda exception: exception.__name__)
def test_an_exception_is_needed_and_rare(compared: list[Compared], exception: Callable[[Case], bool]) -> None:
    cases = [pair for pair in compared if exception(pair[0])]
    assert disagreements(cases), "it is mended: the exception can go"
    assert len(cases) < 0.05 * len(compared)


def test_cases_reach_every_tier(compared: list[Compared]) -> None:
    tiers = Counter(case.placed().tier for case, _ in ordinary(compared))
    assert min(tiers[tier] for tier in Tier) > 200, tiers
    spared = [case for case, _ in compared if case.affinity is None and case.groups]
    assert len(spared) > 100


# --- the comparison can fail: rules that are wrong in one point


def _forgetting_dead_members(case: Case) -> Placed:
    alive = {group: bookies & case.writable for group, bookies in (case.groups or {}).items()}
    return replace(case, groups=alive).placed()


def _using_a_third_group(case: Case) -> Placed:
    placed = case.placed()
    if placed.feasible:
        return placed
    return replace(placed, parts=(BookieSet(case.writable),), reached=len(case.writable))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda case: case.placed(RuleSet.LEGACY), id="legacy"),
        pytest.param(lambda case: case.placed(RuleSet.STRICT), id="strict"),
        pytest.param(_forgetting_dead_members, id="dead-secondary-counts-only-when-alive"),
        pytest.param(_using_a_third_group, id="third-group"),
    ],
)
def test_a_rule_wrong_in_one_point_is_found_out(compared: list[Compared], wrong: Callable[[Case], Placed]) -> None:
    assert len(disagreements(ordinary(compared), wrong)) > 20
