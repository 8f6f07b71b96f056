"""The closed loop: disks that would be full in seconds are not, since producers are slowed down, and sped up again."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from policies.throttle.alerts import BELOW_HARD, WITHOUT_EFFECT
from policies.units import UserError
from tests.system.disks import Intruder, why_not_mountable
from tests.system.fill import (
    MEBIBYTE,
    MEGABYTE,
    TOPIC,
    FillCluster,
    FillLoad,
    Recorder,
    fill_cluster,
    headgate_settings,
    quota_now,
    set_quota,
)
from tests.system.loop import Headgate, Topic, await_ready, write_settings
from tests.system.older import ensure_kafka_tools
from tests.system.runbooks import Operator, find_commands
from tests.system.waiting import eventually

LOAD = 3 * MEGABYTE
"""Bytes per second that producers want to write. The floors of three brokers are less than a tenth of it, and from the
hard limit to a quarter of it a loop on a busy machine has half a minute to react."""
MIN_HOLD_SECONDS = 3
FLOOR = 65_536
REST_SECONDS = 5.0


@dataclass(frozen=True)
class Case:
    """A set of limits, and the fill that meets them."""

    disk: int
    limits: Mapping[str, Any]
    quota_of_load: float | None
    """How much of the load the default client id may write before; it is the base, then."""
    lowest: float
    """The factor to wait for."""

    @property
    def quota_before(self) -> int | None:
        return None if self.quota_of_load is None else int(LOAD * self.quota_of_load)

    @property
    def base(self) -> int:
        """The rate that a factor is applied to."""
        return self.quota_before or int(0.4 * LOAD)

    @property
    def hard(self) -> int:
        return int(self.limits["hard"]["available_bytes_below"])


HARD_ONLY = Case(200 * MEBIBYTE, {"hard": {"available_bytes_below": 120 * MEBIBYTE}}, None, 0.0)
# A soft zone that takes longer to cross than Kafka's quota window (11 s), so that the rate can follow the factor.
SOFT_AND_HARD = Case(
    400 * MEBIBYTE,
    {"hard": {"available_bytes_below": 60 * MEBIBYTE}, "soft": {"available_bytes_below": 340 * MEBIBYTE}},
    0.4,
    0.3,
)


@contextmanager
def closed_loop(case: Case, cluster: FillCluster, loop: str, folder: Path, port: int) -> Iterator[tuple[Topic, Topic]]:
    """`headgate run` with the quota actuator; gives its decisions and alerts. It must end without a traceback."""
    settings = headgate_settings(
        watched=cluster.servers,
        loop=loop,
        folder=folder,
        port=port,
        limits={**case.limits, "min_hold": f"{MIN_HOLD_SECONDS}s"},
        base=None if case.quota_before else case.base,
        poll="500ms",
    )
    file = write_settings(folder / "headgate.yaml", **settings)
    with Headgate(["run", "-s", str(file)], folder / "run.log") as headgate:
        await_ready(headgate, port)
        prefix = settings["topics"]["prefix"]
        with Topic(loop, f"{prefix}.decided.throttle") as decided, Topic(loop, f"{prefix}.decided.alerts") as alerts:
            yield decided, alerts
        assert headgate.stop() == 0, headgate.output()
        assert "Traceback" not in headgate.output(), headgate.output()


@pytest.fixture(scope="module")
def kafka_tools() -> tuple[Path, ...]:
    """The jar of `kafka-log-dirs.sh`; none without Maven, and then nobody looks at the topic's size."""
    try:
        return ensure_kafka_tools()
    except UserError:
        return ()


@pytest.mark.parametrize(
    "case", [HARD_ONLY, pytest.param(SOFT_AND_HARD, marks=pytest.mark.long)], ids=["hard-only", "soft-and-hard"]
)
def test_no_disk_ever_fills_nothing_acknowledged_is_lost_and_producers_come_back(
    case: Case,
    kafka_jars: tuple[Path, ...],
    kafka_tools: tuple[Path, ...],
    loop_kafka: str,
    tmp_path: Path,
    free_port: int,
    request: pytest.FixtureRequest,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    if (why := why_not_mountable()) is not None:
        pytest.skip(why)
    with fill_cluster(tmp_path, kafka_jars, disk_bytes=case.disk) as cluster:
        if case.quota_before:
            set_quota(cluster.servers, case.quota_before)
        with closed_loop(case, cluster, loop_kafka, tmp_path, free_port) as (decided, alerts):
            with FillLoad(cluster.servers, TOPIC, LOAD) as load, Recorder(cluster, load) as recorder:
                _await_the_stop(case, load, recorder, decided)
                _assert_nothing_is_lost(case, cluster, load)
                if case is HARD_ONLY:
                    _await_a_fill_that_no_quota_explains_is_an_alert(cluster, alerts)
                    _follow_the_runbook(cluster, alerts, kafka_jars, kafka_tools, tmp_path)
                else:
                    cluster.retain(1000)
                eventually("the quota is put back", lambda: recorder.samples[-1].quota == case.quota_before)
                eventually("producers are back", lambda: recorder.rate(2) > 0.9 * LOAD)
            assert quota_now(cluster.servers) == case.quota_before
            least_free = min(sample.least_free for sample in recorder.samples)
            longest = round(max(seconds for _, seconds in load.throttled), 1)
            said = {"least_free_mebibytes": least_free // MEBIBYTE, "longest_throttle_seconds": longest}
            record_testsuite_property(request.node.name, {**said, "factors": [d["factor"] for d in decided.data()]})
            assert least_free > case.hard // 4
            assert cluster.dead() == set()
            assert load.failed == 0
            _assert_quotas_followed(case, recorder, decided)
            _assert_no_oscillation(decided)


def _await_the_stop(case: Case, load: FillLoad, recorder: Recorder, decided: Topic) -> None:
    """Until producers have been at or near a stand-still for a while, although they want to write on."""
    eventually("the factor falls", lambda: any(d["factor"] <= case.lowest for d in decided.data()))
    eventually("the quota follows", lambda: _slowed(case, recorder))
    eventually("producers are told to wait", lambda: bool(load.throttled))
    eventually("they all but stand still", lambda: recorder.rate(2) < 0.1 * LOAD)
    threading.Event().wait(REST_SECONDS)  # nothing is awaited but that the disks go on not to fill


def _await_a_fill_that_no_quota_explains_is_an_alert(cluster: FillCluster, alerts: Topic) -> None:
    """Something that is not Kafka writes to one disk, more than half of what producers wrote before the stop."""

    def has_status(status: str) -> bool:
        return _last(alerts).get("status") == status

    with Intruder(cluster.disks[1], 2 * MEGABYTE) as intruder:
        eventually("the stop has no effect", partial(has_status, "firing"))
        alert = _last(alerts)
        intruder.stop()
    eventually("the stop has an effect", partial(has_status, "resolved"))
    assert alert["severity"] == "critical"
    assert alert["summary"].startswith("payments is stopped, but broker 1 "), alert
    assert "where its quotas let through 197 kB/s: " in alert["summary"], alert


def _last(alerts: Topic, name: str = WITHOUT_EFFECT) -> dict[str, Any]:
    return next((alert for alert in reversed(alerts.data()) if alert["alert"] == name), {})


def _follow_the_runbook(
    cluster: FillCluster, alerts: Topic, jars: Sequence[Path], tools: Sequence[Path], folder: Path
) -> None:
    """Paste the commands that `headgate explain` prints for the alert; Kafka's own tools carry them out.

    The records are minutes old, so one second of them is kept in place of an hour.
    """
    operator = Operator(folder / "tools")
    operator.install("kafka-configs.sh", jars, "kafka.admin.ConfigCommand")
    operator.install("kafka-log-dirs.sh", (*tools, *jars), "org.apache.kafka.tools.LogDirsCommand")
    subject = _last(alerts, BELOW_HARD)["subject"]
    with Headgate(["explain", subject, "-s", str(folder / "headgate.yaml")], folder / "explain.log") as explain:
        assert explain.wait() == 0, explain.output()
    *changes, look = find_commands(explain.output(), "throttle", BELOW_HARD)
    assert [TOPIC in each and cluster.servers in each for each in (*changes, look)] == [True] * 3, changes
    before = _size_of(operator.run([look])) if tools else 0
    operator.run(changes, {"retention.ms=3600000": "retention.ms=1000"})
    if tools:
        eventually("its size falls", lambda: _size_of(operator.run([look])) < before // 2)
    eventually("the alert ends", lambda: _last(alerts, BELOW_HARD)["status"] == "resolved")


def _size_of(printed: str) -> int:
    """The bytes of all partitions that `kafka-log-dirs.sh` prints."""
    (document,) = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
    found = (dir_["partitions"] for broker in document["brokers"] for dir_ in broker["logDirs"])
    return sum(partition["size"] for partitions in found for partition in partitions)


def _slowed(case: Case, recorder: Recorder) -> bool:
    quota = recorder.samples[-1].quota
    return quota is not None and quota < (case.quota_before or LOAD)


def _assert_nothing_is_lost(case: Case, cluster: FillCluster, load: FillLoad) -> None:
    """What is acknowledged is in the log. Records may follow at the floor's rate while this looks."""
    acknowledged, last = dict(load.acknowledged), dict(load.last_offset)
    offsets = cluster.offsets()
    assert sum(acknowledged.values()) > 0
    for partition, count in acknowledged.items():
        first, end = offsets[partition]
        assert first == 0, "nothing has been deleted yet"
        assert count <= end
        assert last[partition] < end
    waiting = sum(end for _, end in offsets.values()) - sum(acknowledged.values())
    assert waiting < LOAD / 16_384, "more in the log than acknowledged or on its way: sent twice"


def _assert_quotas_followed(case: Case, recorder: Recorder, decided: Topic) -> None:
    """Each quota that was ever seen is that of a factor, and the least factor's was seen."""
    base = case.base
    of_factors = {max(int(base * d["factor"]), FLOOR) for d in decided.data() if d["factor"] < 1.0}
    seen = {sample.quota for sample in recorder.samples} - {case.quota_before, None}
    assert seen <= of_factors
    assert min(of_factors) in seen


def _assert_no_oscillation(decided: Topic) -> None:
    """Raises are `min_hold` apart from the change before; with one fill there is one way down and one up."""
    changes = [d for d in decided.data() if d["verdict"] in ("lower", "raise")]
    for before, after in itertools.pairwise(changes):
        if after["verdict"] == "raise":
            held = datetime.fromisoformat(after["decided_at"]) - datetime.fromisoformat(before["decided_at"])
            assert held.total_seconds() >= MIN_HOLD_SECONDS
    verdicts = [d["verdict"] for d in changes]
    assert verdicts == sorted(verdicts), verdicts  # all of "lower", then all of "raise"
    assert 1 <= verdicts.count("raise") <= 3
