"""Keeping one cluster's publish limits as decided: fence, expiry, failures, restart, release; in virtual time."""

import json
from collections.abc import Mapping
from datetime import timedelta
from threading import Event
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from prometheus_client import CollectorRegistry

from connectors.bookie_disks import io
from connectors.bookie_disks.publishing import (
    BrokerLimits,
    NamespaceLimits,
    PublishAdmin,
    PublishLimits,
    PublishMetrics,
    PublishWorker,
)
from connectors.decided import DecisionsInForce
from connectors.kafka.tail import Record
from connectors.policy_io import ActuatorContext
from connectors.pulsar.settings import PulsarAdmin
from connectors.registration import ClusterSources
from policies.bookie_disks.decisions import BookieThrottle
from policies.bookie_disks.readings import FoundLimit, PublishRecord, PublishState
from policies.bookie_disks.settings import PublishSettings
from policies.bookie_readings import BookieAffinity, BrokerGroups, NamespaceAffinity
from policies.decisions import Mode
from policies.effects import judge_in_force, report_key
from policies.observations import Outcome
from policies.units import to_millis
from tests.connectors.actuation.virtual_clock import NOON, VirtualClock
from tests.policies.bookie_disks.scenario import settings
from tests.policies.scenario import decide

SETTING = "brokerPublisherThrottlingMaxByteRate"
SYSTEM = "pulsar/system"
OK, GONE = httpx.Response(204), httpx.Response(404, json={"reason": "does not exist"})


class Pulsar:
    """Namespaces with their policies, and dynamic settings; `down` makes each request fail."""

    def __init__(self, *namespaces: str) -> None:
        self.policies: dict[str, dict[str, Any]] = {name: {"properties": {}} for name in (*namespaces, SYSTEM)}
        self.dynamic: dict[str, str] = {}
        self.configured = "0"
        self.writes: list[str] = []
        self.requests = 0
        self.down = False
        self.refuses_rates = False

    def admin(self) -> PublishAdmin:
        return PublishAdmin(PulsarAdmin(admin_url="http://pulsar:8080"), httpx.MockTransport(self._take))

    def rate(self, namespace: str) -> int | None:
        document = self.policies[namespace].get("publishRate")
        return None if document is None else int(document["publishThrottlingRateInByte"])

    def _take(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.down:
            raise httpx.ConnectError("refused", request=request)
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.url.path}")
            if self.refuses_rates and "publishRate" in request.url.path:
                return httpx.Response(500, json={"reason": "refused"})
        body = json.loads(request.content) if request.content else None
        parts = [unquote(part) for part in request.url.raw_path.decode().removeprefix("/admin/v2/").split("/")]
        match request.method, parts:
            case "GET", ["tenants"]:
                return httpx.Response(200, json=sorted({name.split("/")[0] for name in self.policies}))
            case "GET", ["namespaces", tenant]:
                return httpx.Response(200, json=[name for name in self.policies if name.startswith(f"{tenant}/")])
            case _, ["namespaces", tenant, name, *rest]:
                return self._namespace(request.method, f"{tenant}/{name}", rest, body)
            case "GET", ["brokers", "local"]:
                return httpx.Response(200, json=["pulsar1:8080", "pulsar2:8080"])
        return self._broker(request.method, parts[2:])

    def _broker(self, method: str, parts: list[str]) -> httpx.Response:
        match method, parts:
            case "GET", ["values"]:
                return httpx.Response(200, json=self.dynamic)
            case "GET", ["runtime"]:
                return httpx.Response(200, json={SETTING: self.dynamic.get(SETTING, self.configured)})
            case "POST", [name, value]:
                self.dynamic[name] = value
            case "DELETE", [name]:
                self.dynamic.pop(name, None)
        return OK

    def _namespace(self, method: str, name: str, rest: list[str], body: Any) -> httpx.Response:
        policies = self.policies.get(name)
        if policies is None:
            return GONE
        match method, rest:
            case "GET", [what]:
                found = policies.get(what)
                return httpx.Response(200, json=found) if found is not None else httpx.Response(200)
            case "PUT", ["properties"]:
                policies["properties"] |= body
            case "DELETE", ["property", key]:
                policies["properties"].pop(key, None)
            case "POST", ["publishRate"]:
                policies["publishRate"] = body
            case "DELETE", [what]:
                policies.pop(what, None)
        return OK


MB = 1_000_000
KINDS: Mapping[str, type[PublishLimits]] = {"broker": BrokerLimits, "namespace": NamespaceLimits}
EVERY_KIND = pytest.mark.parametrize("by", list(KINDS))


class Bench:
    """One cluster's worker, with its clock in hand; the cluster and what was reported outlive it."""

    def __init__(self, by: str, pulsar: Pulsar | None = None, **block: Any) -> None:
        self.by = by
        self.clock = VirtualClock(still=True)
        self.pulsar = pulsar or Pulsar("acme/a", "acme/b", "acme/c")
        self.events: list[dict[str, Any]] = []
        self.reports: list[bytes] = []
        self.states: list[PublishState] = []
        self.block = PublishSettings.model_validate({"by": by, "base": 10 * MB, **block})
        self.sequence = 0
        self.restart()

    def restart(self, *, is_placed: bool = True) -> None:
        """A worker that knows nothing yet but, perhaps, the groups of namespaces."""
        kinds = {by: make(self.pulsar.admin()) for by, make in KINDS.items()}
        limits = kinds.pop(self.by)
        self.registry = CollectorRegistry()
        metrics = PublishMetrics(self.registry)
        policy, others = settings(fallback_factor=0.5), tuple(kinds.values())
        self.worker = PublishWorker(
            "c1", self.block, policy, limits, self._publish, self.states.append, metrics, others, self.clock
        )
        if is_placed:
            self.place()

    def place(self) -> None:
        """A reading of the namespaces' groups."""
        groups = {"acme/a": ("g1",), "acme/b": ("g1",), "acme/c": ("g2",)}
        namespaces = {name: NamespaceAffinity(primary=primary) for name, primary in groups.items()}
        self.worker.place(BookieAffinity(cluster="c1", outcome=Outcome.OK, namespaces=namespaces))

    def _publish(self, _key: str, value: bytes) -> None:
        self.events.append(json.loads(value)["data"])
        self.reports.append(value)

    def decide(self, after: float = 1.0, **factors: float | None) -> "Bench":
        """Time passes, decisions about groups come in (None: the group has ended), and what is due is done."""
        self.clock.advance(after)
        for group, factor in factors.items():
            self.order(group, 1.0 if factor is None else factor, ends=factor is None)
        self.worker.reconcile(Event())
        return self

    def order(self, group: str, factor: float, *, ends: bool = False, mode: Mode = Mode.ACTIVE, **more: Any) -> None:
        self.sequence += 1
        now, about = self.clock.now(), {"cluster": "c1", "subject": f"c1/{group}", "mode": mode}
        valid_seconds = None if ends else 180.0
        decision = decide(factor, self.sequence, decided_at=now, valid_seconds=valid_seconds, **about, **more)
        self.worker.receive(decision, now)

    def limits(self) -> dict[str, int | None]:
        """The limit of each target."""
        pulsar = self.pulsar
        if self.by == "broker":
            return {"brokers": int(pulsar.dynamic[SETTING]) if SETTING in pulsar.dynamic else None}
        return {name: pulsar.rate(name) for name in pulsar.policies if name != SYSTEM}

    def is_untouched(self) -> bool:
        """Whether nothing of ours is left on the cluster."""
        pulsar = self.pulsar
        return not pulsar.dynamic and all(p == {"properties": {}} for p in pulsar.policies.values())

    def overwritten(self, target: str) -> float | None:
        """The count of changes by somebody else."""
        return self.registry.get_sample_value("headgate_publish_overwritten_total", {"cluster": "c1", "target": target})

    def shown(self) -> str:
        """What the status page says of the limits."""
        reader = DecisionsInForce()
        for value in self.reports:
            appended_ms = to_millis(self.clock.now())
            reader.fold(Record("headgate.applied.reports", report_key(value).encode(), value, appended_ms))
        order: dict[str, Any] = {"cluster": "c1", "subject": "c1/g1", "factor": 0.4, "group": "g1", "valid_until": None}
        asked = BookieThrottle.model_construct(mode=Mode.ACTIVE, **order)
        found = judge_in_force("bookie_disks", "c1", [asked], reader.book.effects("bookie_disks", "c1"), None, NOON)
        return "" if found is None else found.describe_set()

    def reasons(self) -> list[tuple[str, str, str]]:
        return [(e["target"], e["outcome"], e["reason"]) for e in self.events]


@pytest.mark.parametrize(
    ("by", "limits"),
    [("broker", {"brokers": 4 * MB}), ("namespace", {"acme/a": 4 * MB, "acme/b": 4 * MB, "acme/c": None})],
)
def test_a_groups_factor_slows_only_its_own_targets(by: str, limits: dict[str, int | None]) -> None:
    bench = Bench(by).decide(g1=0.4, g2=1.0, default=1.0)
    assert bench.limits() == limits


@EVERY_KIND
@pytest.mark.parametrize("factor", [1.0, None], ids=["factor 1", "the group ended"])
def test_when_nobody_is_slowed_down_any_more_everything_is_as_before(by: str, factor: float | None) -> None:
    assert Bench(by).decide(g1=0.4, g2=1.0, default=1.0).decide(g1=factor).is_untouched()


@EVERY_KIND
def test_a_factor_of_zero_is_the_floor_and_never_unlimited(by: str) -> None:
    bench = Bench(by, floor_bytes_per_second="100kB").decide(g1=0.0, g2=0.0, default=0.0)
    assert set(bench.limits().values()) == {100_000}


@EVERY_KIND
def test_a_worker_that_died_is_followed_by_one_that_knows_the_original(by: str) -> None:
    bench = Bench(by).decide(g1=0.1, default=1.0)
    bench.restart()
    bench.decide(g1=0.2, default=1.0)
    assert 2 * MB in bench.limits().values()
    bench.restart()
    assert bench.decide(g1=1.0, default=1.0).is_untouched()


@EVERY_KIND
def test_release_needs_the_cluster_only(by: str) -> None:
    bench = Bench(by).decide(g1=0.1, default=1.0)
    bench.by = "namespace"
    bench.restart()
    assert bench.worker.release() == []
    assert bench.is_untouched()


@EVERY_KIND
def test_limits_of_an_earlier_setting_are_put_back(by: str) -> None:
    bench = Bench(by).decide(g1=0.4, default=1.0)
    bench.by = "broker" if by != "broker" else "namespace"
    bench.block = PublishSettings.model_validate({"by": bench.by, "base": 10 * MB})
    bench.restart()
    bench.decide(g1=1.0, default=1.0)
    assert bench.is_untouched()


@EVERY_KIND
def test_status_shows_what_is_set_and_since_when_it_fails(by: str) -> None:
    bench = Bench(by).decide(g1=0.4, g2=1.0, default=1.0)
    target = "brokers" if by == "broker" else "acme/a, acme/b"
    held = f"set: 4.0 MB/s for {target} since 2026-11-21 12:00:01 UTC by the publish actuator"
    assert bench.shown() == held
    assert bench.decide(after=6).shown() == held, "found so"
    bench.pulsar.down = True
    assert bench.decide(after=6, g1=0.3).shown().startswith(f"{held}; FAILING since 2026-11-21 12:00:13 UTC: ")
    bench.pulsar.down = False
    assert bench.decide(after=6, g1=0.4).shown() == held
    assert bench.decide(g1=1.0).shown().startswith("set: nothing of Headgate's (no limit for ")


def test_a_failure_names_the_rate_that_is_not_set_if_it_is_known() -> None:
    bench = Bench("namespace")
    bench.pulsar.refuses_rates = True
    bench.pulsar.policies["acme/b"]["properties"]["headgate-publish-rate"] = "{"
    shown = bench.decide(g1=0.4, default=1.0).shown()
    assert "FAILING since 2026-11-21 12:00:01 UTC: acme/a, acme/b (" in shown
    assert [each["explanation"] for each in bench.events] == [
        "The publish limit of acme/a on c1 could not be set to 4.0 MB/s, for factor 0.40.",
        "The publish limit of acme/b on c1 could not be read or set, for factor 0.40.",
    ]


@EVERY_KIND
def test_a_failure_ends_in_status_though_no_limit_had_to_be_set(by: str) -> None:
    bench = Bench(by)
    bench.pulsar.down = True
    assert "FAILING" in bench.decide(g1=1.0, default=1.0).shown()
    bench.pulsar.down = False
    assert bench.decide(after=6).shown() == "set: nothing"


def test_reports_go_to_the_audit_and_to_the_topic_of_the_last_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, topics = Bench("namespace").decide(g1=0.4, default=1.0), set[str]()
    monkeypatch.setattr(io, "PublishAdmin", lambda _: bench.pulsar.admin())

    class Cluster(ClusterSources):
        publish: PublishSettings

    clusters = {"c1": Cluster(pulsar=PulsarAdmin(admin_url="http://pulsar:8080"), publish=bench.block)}
    rest: Any = None
    context = ActuatorContext(
        clusters, settings(), rest, str, lambda topic, *_: topics.add(topic), rest, CollectorRegistry(), *[rest] * 4
    )
    assert list(io.release_publishing(context)) == ["c1: publish limits are as before Headgate."]
    assert topics == {"audit", "applied.reports"}


@EVERY_KIND
def test_in_shadow_mode_nothing_is_set_and_what_was_set_is_taken_back(by: str) -> None:
    bench = Bench(by).decide(g1=0.4, default=1.0)
    bench.order("g1", 0.4, mode=Mode.SHADOW)
    assert bench.decide().is_untouched()


@EVERY_KIND
@pytest.mark.parametrize("factor", [0.4, 0.8])
def test_a_loop_that_died_during_a_pause_opens_no_gate_after_it(by: str, factor: float) -> None:
    bench = Bench(by).decide(g1=0.4, default=1.0)
    bench.order("g1", factor, mode=Mode.SHADOW, frozen_until=bench.clock.now() + timedelta(minutes=1))
    assert 4 * MB in bench.decide(after=170.0).limits().values(), "kept until the order expires"
    fallback = min(factor, 0.5)
    assert int(10 * MB * fallback) in bench.decide(after=20.0).limits().values()


def test_an_original_rate_is_put_back_exactly_with_its_messages() -> None:
    bench = Bench("namespace")
    original = {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": 5 * MB}
    bench.pulsar.policies["acme/a"]["publishRate"] = original
    bench.decide(g1=0.1, default=1.0)
    assert bench.pulsar.policies["acme/a"]["publishRate"] == {**original, "publishThrottlingRateInByte": MB}
    bench.decide(g1=1.0)
    assert bench.pulsar.policies["acme/a"]["publishRate"] == original


def test_a_rate_that_a_person_sets_meanwhile_is_replaced_and_put_back_in_the_end() -> None:
    bench = Bench("namespace").decide(g1=0.5, default=1.0)
    theirs = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 9 * MB}
    bench.pulsar.policies["acme/a"]["publishRate"] = theirs
    bench.decide(after=6)
    assert bench.limits()["acme/a"] == 5 * MB
    assert ("acme/a", "applied", "changed_by_hand") in bench.reasons()
    bench.decide(g1=1.0)
    assert bench.pulsar.policies["acme/a"]["publishRate"] == theirs


def test_each_change_by_somebody_else_is_counted_and_headgates_own_changes_are_not() -> None:
    bench = Bench("namespace").decide(g1=0.5, default=1.0).decide(after=6)
    bench.decide(g1=0.4).decide(after=6).decide(after=6)
    assert bench.overwritten("acme/a") == 0
    for times in (1, 2, 3):
        bench.pulsar.policies["acme/a"].pop("publishRate")
        bench.decide(after=6).decide(after=6)
        assert bench.overwritten("acme/a") == times
    bench.decide(g1=1.0).decide(after=600)
    assert bench.overwritten("acme/a") == 3
    assert bench.overwritten("acme/b") == 0


def test_a_configured_limit_of_brokers_returns_when_the_dynamic_one_is_deleted() -> None:
    bench = Bench("broker", base=None)
    bench.pulsar.configured = str(8 * MB)
    assert bench.decide(default=0.5).limits() == {"brokers": 4 * MB}
    assert bench.decide(default=1.0).is_untouched()


def test_the_least_factor_of_all_groups_holds_for_brokers() -> None:
    assert Bench("broker").decide(g1=0.7, g2=0.3, default=1.0).limits() == {"brokers": 3 * MB}


@EVERY_KIND
def test_a_damaged_record_is_named_and_nothing_is_guessed(by: str) -> None:
    bench = Bench(by).decide(g1=0.5, default=1.0)
    for policies in bench.pulsar.policies.values():
        policies["properties"] = dict.fromkeys(policies["properties"], "{")
    bench.restart()
    before = bench.limits()
    bench.decide(g1=1.0, default=1.0)
    assert bench.limits() == before
    assert "is damaged" in bench.events[-1]["detail"]


@EVERY_KIND
def test_a_process_that_may_act_again_reads_the_records_again(by: str) -> None:
    bench = Bench(by).decide(g1=0.4, default=1.0)
    bench.worker.may_act = lambda: False
    bench.decide(after=60)
    other = Bench(by, bench.pulsar)
    other.decide(g1=1.0, default=1.0)
    assert other.is_untouched()
    bench.worker.may_act = lambda: True
    bench.decide(after=2)
    assert 4 * MB in bench.limits().values()
    assert bench.decide(g1=1.0).is_untouched()


def test_a_damaged_record_keeps_no_other_namespace_from_being_slowed() -> None:
    bench = Bench("namespace")
    properties = bench.pulsar.policies["acme/a"]["properties"]
    properties["headgate-publish-rate"] = "{"
    bench.decide(g1=0.5, default=1.0)
    assert bench.limits() == {"acme/a": None, "acme/b": 5 * MB, "acme/c": None}
    assert [e["target"] for e in bench.events if "is damaged" in (e["detail"] or "")] == ["acme/a"]
    properties.clear()  # somebody repairs it
    bench.decide(after=6)
    assert bench.limits() == {"acme/a": 5 * MB, "acme/b": 5 * MB, "acme/c": None}


def test_looks_that_fail_take_a_tenth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("namespace")
    bench.pulsar.policies["acme/a"]["properties"]["headgate-publish-rate"] = "{"
    monkeypatch.setattr(bench.clock, "monotonic", lambda: bench.clock.time.timestamp() + 0.1 * bench.pulsar.requests)
    bench.decide(g1=0.5, default=1.0)
    assert bench.worker.pause_seconds() == pytest.approx(10 * 0.1 * bench.pulsar.requests, abs=1)


def test_a_namespace_that_is_deleted_while_it_is_slowed_is_no_failure() -> None:
    bench = Bench("namespace").decide(g1=0.4, default=1.0)
    del bench.pulsar.policies["acme/a"]
    bench.decide(after=6).decide(after=6)
    assert bench.registry.get_sample_value("headgate_publish_failing", {"cluster": "c1"}) == 0
    assert bench.limits() == {"acme/b": 4 * MB, "acme/c": None}
    assert bench.shown() == "set: 4.0 MB/s for acme/b since 2026-11-21 12:00:01 UTC by the publish actuator"
    labels = {"cluster": "c1", "target": "acme/a"}
    assert bench.registry.get_sample_value("headgate_publish_bytes_per_second", labels) is None


@EVERY_KIND
def test_a_rate_is_not_set_again_without_its_record(by: str) -> None:
    bench = Bench(by).decide(g1=0.4, default=1.0)
    assert Bench(by, bench.pulsar).worker.release() == []  # on another machine
    assert 4 * MB in bench.decide(after=6).limits().values()
    bench.restart()
    assert bench.decide(g1=1.0, default=1.0).is_untouched()


@EVERY_KIND
def test_while_the_groups_of_namespaces_are_unknown_no_gate_opens(by: str) -> None:
    bench = Bench(by).decide(g1=0.4, default=1.0)
    before = bench.limits()
    bench.restart(is_placed=False)
    assert bench.decide(after=0, g1=0.4, default=1.0).limits() == before
    failing = bench.registry.get_sample_value("headgate_publish_failing", {"cluster": "c1"})
    assert failing == (by != "broker"), "one setting for all brokers needs no groups"
    bench.place()
    assert bench.decide(after=6, g1=1.0).is_untouched()


def test_one_reading_without_affinities_opens_no_gate() -> None:
    bench = Bench("namespace").decide(g1=0.4, default=1.0)
    nothing = BookieAffinity(cluster="c1", outcome=Outcome.OK, namespaces={})
    bench.worker.place(nothing)
    assert bench.decide(after=6).limits() == {"acme/a": 4 * MB, "acme/b": 4 * MB, "acme/c": None}
    bench.worker.place(nothing)
    assert bench.decide(after=6).is_untouched(), "a second one confirms it"


@EVERY_KIND
def test_without_groups_of_bookies_no_affinity_is_needed(by: str) -> None:
    bench = Bench(by)
    bench.restart(is_placed=False)
    assert set(bench.decide(default=0.4).limits().values()) == {4 * MB}


def test_namespaces_without_affinity_belong_to_the_brokers_own_groups() -> None:
    bench = Bench("namespace")
    bench.restart(is_placed=False)
    namespaces = {"acme/a": NamespaceAffinity(), "acme/b": NamespaceAffinity(primary=("*",))}
    own = BrokerGroups(primary=("g1",))
    bench.worker.place(BookieAffinity(cluster="c1", outcome=Outcome.OK, namespaces=namespaces, broker_groups=own))
    assert bench.decide(g1=0.5, default=1.0).limits() == {"acme/a": 5 * MB, "acme/b": None, "acme/c": None}


def let_through(bench: Bench) -> int | None:
    """What the limits let through by the last reading; there are two brokers."""
    return bench.states[-1].let_through_bytes_per_second


@pytest.mark.parametrize(
    ("by", "expected", "of_topics"),
    [
        pytest.param("broker", 2 * 4 * MB, None, id="the least factor on each broker"),
        pytest.param("namespace", None, 3 * 4 * MB, id="the number of topics is not known"),
    ],
)
def test_what_all_limits_let_through_is_published_once_they_are_read_back(
    by: str, expected: int | None, of_topics: int | None
) -> None:
    bench = Bench(by).decide(g1=0.4, g2=0.4, default=0.4)
    assert let_through(bench) is None
    assert let_through(bench.decide(after=6)) == expected
    assert bench.states[-1].topics_bytes_per_second == of_topics


def test_a_rate_that_goes_down_counts_from_when_it_is_read_back() -> None:
    bench = Bench("broker").decide(default=0.5).decide(after=6)
    assert let_through(bench.decide(default=0.1)) == 2 * 5 * MB
    assert let_through(bench.decide(after=6)) == 2 * MB


# --- the limits of namespaces, on names that must be quoted


def test_a_record_is_read_as_it_was_written() -> None:
    limits = NamespaceLimits(Pulsar("acme/a b").admin())
    record = PublishRecord(FoundLimit(5, '{"x": 1}'), (4, 3))
    limits.write_record("acme/a b", record)
    assert limits.records().known == {"acme/a b": record}
    limits.delete_record("acme/a b")
    assert limits.records().known == {}


def test_a_namespace_that_is_gone_has_no_limit() -> None:
    limits = NamespaceLimits(Pulsar().admin())
    assert limits.find("acme/gone") == FoundLimit(None, None)
