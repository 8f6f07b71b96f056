"""`headgate placement` and `disks`: what one reading of a cluster's bookies shows, and what a change would do to it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.policy_commands import bookies
from deploy.policy_commands.apps import placement, promise
from deploy.policy_commands.bookies import show_disks, show_placement
from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from policies.bookie_readings import (
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    BrokerGroups,
    BrokerIsolation,
    NamespaceAffinity,
    RackInfo,
)
from policies.isolation.placement import parse_change
from policies.isolation.settings import RuleSet
from policies.observations import Outcome, Reading
from policies.units import UserError
from tests.cases import for_each
from tests.policies.bookie_disks.scenario import all_disks, failed
from tests.policies.cases_of_bookies import affinity, racks

CLUSTER: dict[str, Any] = {"cluster": "c1", "outcome": Outcome.OK}
GROUPS = {"red": ("r1", "r2", "r3"), "blue": ("b1", "b2")}
Policies = tuple[BrokerIsolation, ...] | None
NAMESPACES = {
    "t/red": NamespaceAffinity(primary=("red",), ensemble_size=2),
    "t/both": NamespaceAffinity(primary=("blue",), secondary=("red",), ensemble_size=3),
}


def readings() -> list[Reading]:
    """Two groups of bookies, all writable, and two namespaces with affinity."""
    members = [bookie for group in GROUPS.values() for bookie in group]
    racks = {group: {bookie: RackInfo(rack="/a") for bookie in bookies} for group, bookies in GROUPS.items()}
    return [
        Bookies(**CLUSTER, writable=tuple(BookieRegistration(bookie=each) for each in members), known=tuple(members)),
        BookieRacks(**CLUSTER, groups=racks),
        BookieAffinity(**CLUSTER, namespaces=NAMESPACES),
    ]


class FakeCollector:
    """Publishes what is given, as one that polls a cluster once."""

    given: list[Reading]

    def __init__(self, _source: object, publish: Callable[[Reading], None], _metrics: object) -> None:
        self._publish = publish

    def poll_once(self) -> None:
        for reading in self.given[:-1]:
            self._publish(reading)

    def poll_affinity_once(self) -> None:
        self._publish(self.given[-1])


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> type[FakeCollector]:
    FakeCollector.given = readings()
    monkeypatch.setattr(bookies, "BookieCollector", FakeCollector)
    return FakeCollector


WATCHED = {"zookeeper": {"servers": "127.0.0.1:1"}, "bookies": {}}
KAFKA_ONLY = {"kafka": {"bootstrap_servers": "127.0.0.1:1"}}
SETTINGS = Settings.model_validate({"clusters": {"c1": WATCHED, "kafka-only": KAFKA_ONLY}})


def verdicts(capsys: pytest.CaptureFixture[str], **query: Any) -> dict[str, tuple[str, list[str]]]:
    """By namespace: the verdict, and the bookies it may place data on."""
    show_placement(SETTINGS, "c1", query.pop("namespace", None), **query, as_json=True)
    found = json.loads(capsys.readouterr().out)
    return {each["namespace"]: (each["verdict"], sorted(each["candidates"])) for each in found}


def test_all_namespaces_with_affinity_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdicts(capsys) == {
        "t/red": ("isolated", ["r1", "r2", "r3"]),
        "t/both": ("spills_to_secondary", ["b1", "b2", "r1", "r2", "r3"]),
    }
    assert list(verdicts(capsys, namespace="t/red")) == ["t/red"], "of one namespace only that"


@for_each("namespace", ["red", "t/", "/red", ""])
def test_what_is_no_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(UserError, match=f"--namespace: '{namespace}' is no namespace: write it as tenant/namespace"):
        placement("c1", namespace)
    with pytest.raises(UserError, match=f"--namespace: '{namespace}' is no namespace"):
        promise("strict", "c1", namespace)


def test_a_namespace_that_says_nothing_may_place_its_data_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    ((verdict, candidates),) = verdicts(capsys, namespace="t/plain").values()
    assert verdict == "unconstrained"
    assert set(candidates) == {bookie for group in GROUPS.values() for bookie in group}


def test_a_change_or_another_ensemble_size_that_somebody_thinks_of_counts(capsys: pytest.CaptureFixture[str]) -> None:
    changes = tuple(parse_change(f"remove={bookie}") for bookie in ("r1", "r2"))
    ((verdict, _),) = verdicts(capsys, namespace="t/red", changes=changes, rules=RuleSet.STRICT).values()
    assert verdict == "infeasible"
    ((verdict, _),) = verdicts(capsys, namespace="t/both", ensemble_size=2).values()
    assert verdict == "isolated"


def test_a_person_sees_each_bookie_and_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    show_placement(SETTINGS, "c1", "t/red", as_json=False)
    shown = capsys.readouterr().out
    assert all(bookie in shown for group in GROUPS.values() for bookie in group)
    assert "isolated: t/red" in shown


def test_a_person_sees_all_namespaces_and_what_belongs_to_no_group(
    capsys: pytest.CaptureFixture[str], collector: type[FakeCollector]
) -> None:
    bookies = collector.given[0]
    assert isinstance(bookies, Bookies)
    loose = bookies.model_copy(update={"writable": (*bookies.writable, BookieRegistration(bookie="loose"))})
    collector.given[0] = loose
    show_placement(SETTINGS, "c1", None, as_json=False)
    shown = capsys.readouterr().out
    assert "2 namespaces with affinity, 6 writable bookies" in shown
    assert "in no group: loose" in shown


in_eu = partial(BrokerIsolation, pulsar_cluster="eu")
BROKERS = (
    in_eu(name="reds", namespaces=("t/re.",), primary=("b1.*",), secondary=("b2.*",), min_available=2),
    in_eu(name="late", namespaces=("t/.*",), primary=("b9",)),
    in_eu(name="not Python's", namespaces=("(?<name", "t/both"), primary=("b3",)),
)


def with_brokers(collector: type[FakeCollector], policies: Policies) -> None:
    collector.given[2] = BookieAffinity(**CLUSTER, namespaces=NAMESPACES, broker_policies=policies)


def test_which_brokers_serve_a_namespace_is_shown_beside_its_bookies(
    capsys: pytest.CaptureFixture[str], collector: type[FakeCollector]
) -> None:
    with_brokers(collector, BROKERS)
    show_placement(SETTINGS, "c1", None, as_json=True)
    found = {each["namespace"]: each["broker_policies"] for each in json.loads(capsys.readouterr().out)}
    assert {name: [p["name"] for p in policies] for name, policies in found.items()} == {
        "t/red": ["reds"], "t/both": ["late"],
    }  # fmt: skip
    show_placement(SETTINGS, "c1", "t/red", as_json=False)
    assert "brokers: b1.*, then b2.* when fewer than 2 of them are there (policy reds of eu)" in _one_line(capsys)


@for_each(("policies", "said"), [(None, "could not be read"), ((), "any, no namespace isolation policy")])
def test_where_no_policy_names_brokers_that_is_said(
    capsys: pytest.CaptureFixture[str], collector: type[FakeCollector], policies: Policies, said: str
) -> None:
    with_brokers(collector, policies)
    show_placement(SETTINGS, "c1", "t/red", as_json=False)
    assert said in _one_line(capsys)


def _one_line(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_what_cannot_be_read_is_a_mistake_and_not_an_empty_cluster(collector: type[FakeCollector]) -> None:
    collector.given[1] = BookieRacks(cluster="c1", outcome=Outcome.TIMEOUT, detail="zk-1 hangs")
    with pytest.raises(UserError, match=r"clusters\.c1: cannot be read \(headgate\.bookie-racks\.v1: timeout, zk-1"):
        show_placement(SETTINGS, "c1", None, as_json=True)


@for_each(("cluster", "message"), [("c2", "--cluster: the settings name no"), ("kafka-only", r"bookies: is not set")])
def test_a_cluster_whose_bookies_are_not_watched_is_refused(cluster: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        show_placement(SETTINGS, cluster, None, as_json=True)


def test_without_local_policies_the_brokers_own_groups_count(
    collector: type[FakeCollector], capsys: pytest.CaptureFixture[str]
) -> None:
    absent = {**CLUSTER, "outcome": Outcome.ABSENT, "broker_groups": BrokerGroups(primary=("blue",))}
    collector.given = [*readings()[:-1], BookieAffinity(**absent)]
    show_placement(SETTINGS, "c1", "t/free", as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["candidates"]) == ("isolated", ["b1", "b2"])


# Each group with its bookies, the best first, and the one that decides.

PLACED = {"g1": "b1 b2", "g2": "b3 b4"}
GOOD = [o.reading for o in (racks(0, PLACED), affinity(0, {"a/b": "g1"}), *all_disks(0, b1=50, b2=16, b3=60, b4=70))]


def show_group(readings: list[Reading], monkeypatch: pytest.MonkeyPatch, *, as_json: bool) -> None:
    monkeypatch.setattr(bookies, "_read_disks", lambda *_: readings)
    show_disks(Settings(), "c1", as_json=as_json)


def test_a_group_names_what_decides(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    show_group(GOOD, monkeypatch, as_json=True)
    groups = {each["group"]: each for each in json.loads(capsys.readouterr().out)}
    assert {name: (each["factor"], each["decides"]) for name, each in groups.items()} == {
        "g1": (0.5, "b2"), "default": (1.0, "b3"),
    }  # fmt: skip
    assert [b["bookie"] for b in groups["g1"]["bookies"]] == ["b1", "b2"]


def test_an_unread_bookie_is_named_below(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    show_group([*GOOD, failed(0, "b9").reading], monkeypatch, as_json=False)
    out = capsys.readouterr().out
    assert "group g1: factor 0.50 (soft_limit), 1 namespace, ensembles of 2" in out
    assert "c1/b9: not read (unsupported, no answer)" in out


def test_without_any_good_reading_it_is_an_error_with_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"c1/b1: cannot be read \(timeout, no answer\)"):
        show_group([failed(0, "b1", Outcome.TIMEOUT).reading], monkeypatch, as_json=True)


@pytest.mark.parametrize(
    ("cluster", "said"), [("nobody", "settings name no cluster 'nobody'"), ("messaging", "bookie_disks: is not set")]
)
def test_a_cluster_that_is_not_watched_is_named(cluster: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text('clusters: {messaging: {pulsar: {admin_url: "http://127.0.0.1:1"}}}')
    with pytest.raises(UserError, match=said):
        show_disks(load_settings(file), cluster, as_json=False)
