"""The host of policies: what it keeps, what it holds back, and how it reads what an older version kept."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
import pytest

from policies.alerts import Condition
from policies.book import Step
from policies.decisions import Alert, Severity
from policies.observations import Observation
from policies.policy import AlertKind, PolicyKind
from policies.registry import POLICIES
from policies.settings import PolicySettings
from policies.units import from_millis, millis_of, parse_duration, to_millis
from policies.wire import MAX_DECISION_BYTES
from streaming.host import PolicyHost
from streaming.key_state import KeyState, UnreadableStateError, decode, encode
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, at, log_dirs, throttle

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD)})


# A toy policy: counts its observations, and each step.


class CountV1(msgspec.Struct, array_like=True, frozen=True):
    """As version 1 kept it."""

    seen: int


class CountV3(msgspec.Struct, array_like=True, frozen=True):
    """As version 3 keeps it: version 2 added the name, version 3 counts in pairs."""

    name: str
    pairs: float
    at_ms: int = 0


class CountPolicy:
    """Says nothing; keeps what it saw."""

    name = "toy"

    def __init__(self, cluster: str, settings: PolicySettings) -> None:
        self.cluster = cluster
        self.settings = settings

    def step(self, state: CountV3 | None, observations: Sequence[Observation], now: datetime) -> Step[CountV3]:
        before = state or CountV3(self.cluster, 0.0)
        after = CountV3(before.name, before.pairs + len(observations) / 2, to_millis(now))
        return Step(after, due_ms=[to_millis(now) + 5000] if observations else [])


TOY = PolicyKind(
    name="toy", observed={"observed.toys": ()}, decisions=(), alerts=(), settings=PolicySettings,
    state=CountV3, state_version=3, build=CountPolicy,
    upgrades={1: lambda plain: ["unnamed", *plain], 2: lambda plain: [plain[0], plain[1] / 2]},
)  # fmt: skip


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "toy", TOY)


def kept(version: int, state: Any, *, seconds: float = 0) -> KeyState:
    return KeyState(1, version, to_millis(at(seconds)), None, msgspec.Raw(msgspec.msgpack.encode(state)))


def toy(remembered: KeyState) -> CountV3:
    state: CountV3 = PolicyHost().step("toy", CLUSTER, remembered, [], at(1)).step.state
    return state


def test_a_policy_may_sleep_for_ever() -> None:
    remembered, _, _, _ = PolicyHost().step("toy", CLUSTER, None, [], at(0))
    assert remembered.wake_ms is None


@for_each(("then", "now", "stepped_at"), [(10, 20, 20), (10, 10, 10), (10, 3, 10)])
def test_now_never_goes_backwards(then: float, now: float, stepped_at: float) -> None:
    before = kept(3, CountV3(CLUSTER, 1.0), seconds=then)
    remembered, step, _, _ = PolicyHost().step("toy", CLUSTER, before, [], at(now))
    assert step.state.at_ms == remembered.now_ms == to_millis(at(stepped_at))


def test_each_cluster_has_its_own_settings() -> None:
    settings = throttle(SOFT_AND_HARD, clusters={"dev-*": {"heartbeat": "7s"}})
    host = PolicyHost({"throttle": settings})
    wakes = {c: host.step("throttle", c, None, [], at(0))[0].wake_ms for c in ("dev-1", "payments")}
    waits = {cluster: (wake_ms or 0) - to_millis(at(0)) for cluster, wake_ms in wakes.items()}
    assert waits == {"dev-1": 7000, "payments": millis_of(parse_duration("60s"))}


def test_a_policy_is_built_once_for_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(cluster: str, settings: PolicySettings) -> CountPolicy:
        built.append(cluster)
        return CountPolicy(cluster, settings)

    monkeypatch.setitem(POLICIES, "toy", replace(TOY, build=build))
    host = PolicyHost()
    for cluster in ("a", "b", "a"):
        host.step("toy", cluster, None, [], at(0))
    assert built == ["a", "b"]


# Versions


@for_each(
    ("version", "state", "name"),
    [(1, [4], "unnamed"), (2, ["payments", 4], "payments"), (3, ["payments", 2.0], "payments")],
)
def test_the_state_of_an_earlier_version_is_upgraded_step_by_step(version: int, state: Any, name: str) -> None:
    assert toy(kept(version, state)) == CountV3(name, 2.0, to_millis(at(1)))


def test_the_state_of_a_newer_version_is_refused() -> None:
    with pytest.raises(UnreadableStateError, match="toy: state version 4 is newer than 3: use the newer headgate"):
        toy(kept(4, ["payments", 2.0, 0, "news"]))


def test_the_state_of_another_build_of_this_version_is_refused_with_the_way_out() -> None:
    with pytest.raises(UnreadableStateError, match=r"toy: .* another build's form .*`headgate checkpoint reset`"):
        toy(kept(3, [["payments"], 2.0]))
    with pytest.raises(UnreadableStateError, match=r"another build's form .*`headgate checkpoint reset`"):
        decode(msgspec.msgpack.encode(["format"]))


def test_another_format_around_the_state_is_refused() -> None:
    written = encode(KeyState(2, 1, 0, None, msgspec.Raw(msgspec.msgpack.encode([1]))))
    with pytest.raises(UnreadableStateError, match="state format 2 is newer than 1"):
        decode(written)


# What comes out


def test_the_audit_keeps_with_a_decision_what_it_rests_on_as_far_as_its_step_saw_it() -> None:
    seen = [log_dirs(0, 3, 4 * GB), log_dirs(0, 4, 90 * GB)]
    stepped = HOST.step("throttle", CLUSTER, None, seen, at(0))
    (decided, *_) = [json.loads(o.value)["data"] for o in stepped.outputs if o.topic == "audit"]
    (kept,) = [each for each in decided["observations"] if each["id"] == seen[0].id]
    assert kept["id"] in decided["decision"]["evidence"]
    assert (kept["type"], kept["time"]) == ("headgate.log-dirs.v1", "2026-11-21T08:00:00.000Z")
    assert kept["data"]["volumes"][0]["usable_bytes"] == 4 * GB


def test_what_a_decision_rests_on_is_not_kept_with_it_where_it_is_long() -> None:
    long = log_dirs(0, 3, {f"/data/{number:0200d}": 4 * GB for number in range(100)})
    stepped = HOST.step("throttle", CLUSTER, None, [long], at(0))
    assert json.loads(stepped.outputs[-1].value)["data"]["observations"] == []


# A policy that raises


class FragilePolicy(CountPolicy):
    """Raises on every reading of broker 13, and always while it is broken."""

    broken = False

    def step(self, state: CountV3 | None, observations: Sequence[Observation], now: datetime) -> Step[CountV3]:
        if self.broken or any(getattr(o.reading, "broker", 0) == 13 for o in observations):
            raise ValueError("unlucky")
        return super().step(state, observations, now)


def fragile(monkeypatch: pytest.MonkeyPatch) -> PolicyHost:
    monkeypatch.setitem(POLICIES, "toy", replace(TOY, build=FragilePolicy))
    return PolicyHost()


def test_a_policy_that_raises_keeps_its_state_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host = fragile(monkeypatch)
    good, _, _, _ = host.step("toy", CLUSTER, None, [log_dirs(0, 3, 1)], at(0))
    bad, step, failure, _ = host.step("toy", CLUSTER, decode(encode(good)), [log_dirs(1, 13, 1)], at(1))
    assert failure is not None
    assert re.fullmatch(r"ValueError at test_host.py:\d+: unlucky", failure)
    assert bytes(bad.state) == bytes(good.state)
    (alert,) = step.decisions
    assert isinstance(alert, Alert)
    assert (alert.alert, alert.status, alert.severity) == ("policy-failed", "firing", "critical")
    assert alert.summary == f"policy toy fails for {CLUSTER}, what it decided last stays in force: {failure}"
    again, silent, _, _ = host.step("toy", CLUSTER, decode(encode(bad)), [log_dirs(2, 13, 1)], at(2))
    assert silent.decisions == ()
    mended, said, failure, _ = host.step("toy", CLUSTER, decode(encode(again)), [log_dirs(3, 3, 1)], at(3))
    assert failure is None
    assert [(a.status, a.alert_id) for a in said.decisions if isinstance(a, Alert)] == [("resolved", alert.alert_id)]
    assert mended.failures == 0


def test_a_failing_policy_is_tried_again_with_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FragilePolicy, "broken", True)
    host, kept, now_ms, waits = fragile(monkeypatch), None, to_millis(at(0)), []
    for _ in range(12):
        kept, _, failure, _ = host.step("toy", CLUSTER, kept, [], from_millis(now_ms))
        assert failure
        assert kept.wake_ms is not None
        waits.append((kept.wake_ms - now_ms) // 1000)
        now_ms = kept.wake_ms
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_a_policy_that_fails_at_first_begins_anew_once_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    host = fragile(monkeypatch)
    bad, _, _, _ = host.step("toy", CLUSTER, None, [log_dirs(0, 13, 1)], at(0))
    good, _, failure, _ = host.step("toy", CLUSTER, decode(encode(bad)), [log_dirs(1, 3, 1)], at(1))
    assert failure is None
    assert msgspec.msgpack.decode(good.state, type=CountV3).pairs == 0.5


class AlarmedPolicy(CountPolicy):
    """Has as many conditions as observations, and keeps none of them in its state."""

    def step(self, state: CountV3 | None, observations: Sequence[Observation], now: datetime) -> Step[CountV3]:
        found = [Condition("noise", each.id, Severity.INFO, "noise", "x" * 100) for each in observations]
        return replace(super().step(state, (), now), conditions=found)


def test_the_book_counts_among_the_bytes_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    alerts = (AlertKind("noise", (Severity.INFO,), ""),)
    monkeypatch.setitem(POLICIES, "toy", replace(TOY, build=AlarmedPolicy, alerts=alerts))
    monkeypatch.setattr("streaming.host.MOST_STATE_BYTES", 1000)
    seen = [log_dirs(0, number, 1) for number in range(20)]
    results = [PolicyHost().step("toy", CLUSTER, None, seen[:count], at(0)) for count in (2, 20)]
    assert results[0].failure is None
    assert "its state would have" in (results[1].failure or "")


class VerbosePolicy(CountPolicy):
    """Decides what no topic takes on every reading of broker 13."""

    def step(self, state: CountV3 | None, observations: Sequence[Observation], now: datetime) -> Step[CountV3]:
        step = super().step(state, observations, now)
        if not any(getattr(o.reading, "broker", 0) == 13 for o in observations):
            return step
        _, throttled, _, _ = HOST.step("throttle", CLUSTER, None, [log_dirs(0, 3, 4 * GB)], at(0))
        huge = throttled.decisions[0].model_copy(update={"explanation": "x" * (MAX_DECISION_BYTES + 1)})
        return replace(step, decisions=(huge,))


def test_a_decision_that_no_topic_takes_is_an_alert_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "toy", replace(TOY, build=VerbosePolicy))
    host = PolicyHost()
    good, _, _, _ = host.step("toy", CLUSTER, None, [log_dirs(0, 3, 1)], at(0))
    bad, _, failure, records = host.step("toy", CLUSTER, good, [log_dirs(1, 13, 1)], at(1))
    assert failure is not None
    assert re.search(r"a record of decided.throttle about \S+ has \d+ bytes, more than 1000000$", failure)
    assert bytes(bad.state) == bytes(good.state)
    assert [record.topic for record in records] == ["decided.alerts", "audit"]
    assert all(len(record.value) < 10_000 for record in records)


def test_an_alert_that_the_policy_has_not_registered_is_refused_when_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "throttle", replace(POLICIES["throttle"], alerts=()))
    result = HOST.step("throttle", CLUSTER, None, [log_dirs(0, 3, GB // 2)], at(0))
    assert result.failure is not None
    assert "is not registered: add it to `alerts` of its PolicyKind" in result.failure
    assert [alert.alert for alert in result.step.decisions if isinstance(alert, Alert)] == ["policy-failed"]
