"""The clock of a real query leaps while it runs: what it decides is right again within a minute, and ages are true."""

import re
import time
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from policies.observations import Outcome
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event
from tests.system.clocks import Clock, why_no_clock
from tests.system.loop import Headgate, Topic, await_ready, http_get, produce, write_settings
from tests.system.waiting import eventually, on_this_machine

DAY_SECONDS = 86_400
METRIC = re.compile(r"^headgate_query_clock_ahead_seconds (\S+)", re.M)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(why_no_clock() is not None, reason=str(why_no_clock())),
]


def reading(usable_bytes: int) -> tuple[str, bytes]:
    """So much of 1 MB is free."""
    volume = VolumeReading(log_dir="/data", total_bytes=1_000_000, usable_bytes=usable_bytes)
    data = LogDirs(cluster="a", outcome=Outcome.OK, broker=1, volumes=(volume,))
    return "a", observation_event(data, id=str(uuid.uuid4()), source="test", time=datetime.now(UTC))


@pytest.mark.parametrize(
    "ahead_seconds",
    [DAY_SECONDS, -DAY_SECONDS],
    ids=["a day ahead", "a day back"],
)
def test_a_query_whose_clock_leaps_and_stays_so_is_right_again_within_a_minute(
    ahead_seconds: int, tmp_path: Path, loop_kafka: str, free_port: int
) -> None:
    prefix, clock = f"t{uuid.uuid4().hex[:8]}", Clock(tmp_path / "clock")
    observed = f"{prefix}.observed.log-dirs"
    limits: dict[str, Any] = {"soft": {"available_bytes_below": 999_999}, "hard": {"available_bytes_below": 1}}
    file = write_settings(
        tmp_path / "headgate.yaml",
        kafka={"bootstrap_servers": loop_kafka},
        topics={"prefix": prefix},
        data_dir=str(tmp_path / "data"),
        http={"port": free_port},
        policies={"throttle": {**limits, "min_hold": "0s", "min_change": 0.0, "recovery_margin": 0.0}},
    )
    with Headgate(["topics", "create", "-s", str(file)], tmp_path / "topics.log") as create:
        assert create.wait() == 0, create.output()
    with (
        Headgate(["decide", "-s", str(file)], tmp_path / "decide.log", clock.environment) as query,
        Topic(loop_kafka, f"{prefix}.decided.throttle") as decided,
    ):
        await_ready(query, free_port)
        produce(loop_kafka, observed, reading(500_000))
        eventually("a first decision", lambda: decided.data())

        def found_ahead(seconds: float) -> bool:
            """While it is read once a second, as by a collector."""
            time.sleep(1)
            produce(loop_kafka, observed, reading(500_000))
            found = METRIC.search((http_get(free_port, "/metrics") or (0, ""))[1])
            return found is not None and abs(float(found[1]) - seconds) < on_this_machine(20)

        def in_force(factor: float) -> dict[str, Any] | None:
            last = max(decided.data(), key=lambda d: int(d["sequence"]))
            return last if last["factor"] == pytest.approx(factor) else None

        for leap, usable, factor in ((ahead_seconds, 0, 0.0), (0, 999_999, 1.0)):
            clock.set(leap)
            eventually(f"the clock is found {leap} s ahead", partial(found_ahead, leap))
            produce(loop_kafka, observed, reading(usable))
            last = eventually(f"the factor is {factor}", partial(in_force, factor))
            decided_at = datetime.fromisoformat(last["decided_at"])
            assert abs(datetime.now(UTC) - decided_at) < timedelta(seconds=on_this_machine(60)), "by Kafka's clock"
        sequences = [d["sequence"] for d in decided.data()]
        assert sequences == sorted(sequences)
        assert query.stop() == 0, query.output()
