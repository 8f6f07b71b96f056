"""`headgate up`: the embedded cluster is the loop's own and a watched one, with limits of its own, and its end ours."""

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.processes import stack
from deploy.settings.application import EMBEDDED_CLUSTER, Settings
from deploy.settings.embedded import with_embedded
from policies.throttle import ThrottleSettings
from policies.units import UserError
from tests.cases import for_each

SERVERS = "127.0.0.1:19092"
HARD_RATIO, SOFT_RATIO = 0.05, 0.15


def embedded(settings: dict[str, Any]) -> Settings:
    return with_embedded(Settings.model_validate(settings), SERVERS)


def in_force(throttle: dict[str, Any], cluster: str = EMBEDDED_CLUSTER) -> ThrottleSettings:
    block: ThrottleSettings = embedded({"policies": {"throttle": throttle}}).policies.throttle
    return block.for_cluster(cluster)


def limits(throttle: dict[str, Any], cluster: str = EMBEDDED_CLUSTER) -> tuple[float | None, float | None]:
    """(hard, soft) in force for a cluster, as ratios."""
    own = in_force(throttle, cluster)
    hard, soft = (None if limit is None else limit.available_ratio_below for limit in (own.hard, own.soft))
    return hard, soft


def test_whatever_else_is_set_for_the_embedded_cluster_stays() -> None:
    given = {"zookeeper": {"servers": "zk-1:2181"}, "bookies": {}, "sessions": {}}
    cluster = embedded({"clusters": {EMBEDDED_CLUSTER: given}}).clusters[EMBEDDED_CLUSTER]
    assert cluster.kafka is not None
    assert None not in (cluster.zookeeper, cluster.bookies, cluster.sessions)


def test_without_settings_the_embedded_cluster_is_the_loops_own() -> None:
    settings = embedded({})
    watched = settings.clusters[EMBEDDED_CLUSTER].kafka
    assert watched is not None
    assert settings.loop_kafka().servers() == watched.servers() == [SERVERS]


def test_what_is_said_of_watching_it_stays_but_for_its_address() -> None:
    kafka = {"bootstrap_servers": "elsewhere:9092", "poll_interval": "7s"}
    quotas = {"entities": [{"client_id": "default", "base": 1_000_000}]}
    settings = embedded({"clusters": {EMBEDDED_CLUSTER: {"kafka": kafka, "quotas": quotas}}})
    cluster = settings.clusters[EMBEDDED_CLUSTER]
    assert cluster.kafka is not None
    assert (cluster.kafka.servers(), cluster.kafka.poll_interval.total_seconds()) == ([SERVERS], 7)
    assert cluster.quotas is not None


def test_other_watched_clusters_stay() -> None:
    others = {"payments": {"kafka": {"bootstrap_servers": "payments:9092"}}}
    assert list(embedded({"clusters": others}).clusters) == ["payments", EMBEDDED_CLUSTER]


BUILT_IN = (HARD_RATIO, SOFT_RATIO)
HALF = {"hard": {"available_ratio_below": 0.5}}
CASES: dict[str, tuple[dict[str, Any], tuple[float | None, float | None]]] = {
    "no settings": ({}, BUILT_IN),
    "an override that sets no limit": ({"clusters": {EMBEDDED_CLUSTER: {"fallback_factor": 0.5}}}, BUILT_IN),
    "a glob that sets no limit": ({"clusters": {"*": {"fallback_factor": 0.5}}}, BUILT_IN),
    "an override of another cluster": ({"clusters": {"payments": HALF}}, BUILT_IN),
    "its own limit": ({"clusters": {EMBEDDED_CLUSTER: HALF}}, (0.5, None)),
    "a limit for all by a glob": ({"clusters": {"*": HALF}}, (0.5, None)),
    "a limit for all": (HALF, (0.5, None)),
    "one limit taken away": ({"clusters": {EMBEDDED_CLUSTER: {"hard": None}}}, (None, SOFT_RATIO)),
    "both taken away": ({"clusters": {EMBEDDED_CLUSTER: {"hard": None, "soft": None}}}, (None, None)),
}


@for_each(("throttle", "expected"), CASES.values(), ids=CASES)
def test_the_built_in_limits_are_its_defaults_where_the_user_sets_none(
    throttle: dict[str, Any], expected: tuple[float | None, float | None]
) -> None:
    assert limits(throttle) == expected


@for_each("pattern", [EMBEDDED_CLUSTER, "*", "emb*"])
def test_overrides_are_merged_field_by_field_with_the_built_in_limits(pattern: str) -> None:
    throttle = {"fallback_factor": 0.9, "clusters": {pattern: {"fallback_factor": 0.5}}}
    assert (limits(throttle), in_force(throttle).fallback_factor) == (BUILT_IN, 0.5)


def test_an_override_without_a_preset_has_none_for_the_embedded_cluster_either() -> None:
    own = in_force({"preset": "strimzi", "clusters": {EMBEDDED_CLUSTER: {"preset": None}}})
    assert (own.preset, own.min_hold.total_seconds(), own.limited) == (None, 30.0, True)


def test_of_several_overrides_the_first_that_matches_counts_as_everywhere() -> None:
    throttle = {"clusters": {"emb*": {"fallback_factor": 0.5}, EMBEDDED_CLUSTER: {"fallback_factor": 0.2}}}
    assert in_force(throttle).fallback_factor == 0.5


def test_other_clusters_get_no_built_in_limits() -> None:
    assert limits({"clusters": {"*": {"fallback_factor": 0.5}}}, "payments") == (None, None)


def test_a_dead_kafka_ends_the_process_at_once_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Dead:
        def watch(self, _stop: threading.Event, _tell: Any) -> None:
            raise UserError("Kafka broker 1 was ended by SIGKILL (log: /data/broker.log)")

        def stop(self, *, grace_seconds: float) -> None:
            ended.append(grace_seconds)

    ended: list[float] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    stack._end_without(Dead(), SimpleNamespace(step=None), threading.Event())  # type: ignore[arg-type]
    assert (ended, capsys.readouterr().err) == ([0, 2], "Kafka broker 1 was ended by SIGKILL (log: /data/broker.log)\n")
