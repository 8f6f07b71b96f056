"""Two of each process: one is killed or frozen, the other goes on, and who wakes up leaves alone what is another's."""

import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from connectors.kafka.admin import create_topics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.quotas import QuotaClient
from connectors.kafka.topics import PartitionSettings, TopicSettings
from connectors.membership import Membership, deciders_group, describe_loops, find_deciders
from policies.throttle.settings import Entity
from policies.wire import SHARE_COUNT
from tests.progress import tell
from tests.system.loop import UNHURRIED, Headgate, Topic, await_ready, http_get, produce, series, write_settings
from tests.system.processes import freeze
from tests.system.tcp_proxy import TcpProxy
from tests.system.test_loop_recovery import reading
from tests.system.test_quota_actuator import Decider
from tests.system.waiting import eventually

CLUSTERS = tuple(f"c{number}" for number in range(8))
BASE = 1_000_000

Settings = dict[str, Any]


class Process(Headgate):
    """A process with its metrics."""

    def __init__(self, command: str, settings: Settings, folder: Path, port: int) -> None:
        self.port = port
        self.folder = folder
        folder.mkdir()
        own = {**settings, "http": {"port": port}, "data_dir": str(folder / "data")}
        super().__init__([command, "-s", str(write_settings(folder / "headgate.yaml", **own))], folder / "log")

    def metric(self, name: str) -> float:
        """The sum over its series; 0 where there is none, or nobody answers."""
        page = (http_get(self.port, "/metrics") or (0, ""))[1]
        return sum(value for _, value in series(page, name))

    def freeze(self) -> None:
        freeze(self.process.pid)

    def ready(self) -> str:
        return (http_get(self.port, "/-/ready") or (0, "not ready"))[1]

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def settings(loop_kafka: str) -> Settings:
    prefix = f"h{uuid.uuid4().hex[:8]}"
    create_topics(KafkaConnection(bootstrap_servers=loop_kafka), TopicSettings(prefix=prefix))
    watched = {"bootstrap_servers": loop_kafka, "poll_interval": "500ms"}
    return {
        "kafka": {"bootstrap_servers": loop_kafka},
        "topics": {"prefix": prefix},
        "clusters": {name: {"kafka": watched} for name in CLUSTERS},
    }


@pytest.fixture
def start(tmp_path: Path, free_tcp_port_factory: Callable[[], int]) -> Iterator[Callable[[str, Settings], Process]]:
    with ExitStack() as stack:

        def started(command: str, settings: Settings) -> Process:
            folder = tmp_path / uuid.uuid4().hex[:8]
            process = stack.enter_context(Process(command, settings, folder, free_tcp_port_factory()))
            await_ready(process, process.port)
            return process

        yield started


def share_all(first: Process, second: Process) -> None:
    """Wait until they hold all shares between them, each some."""

    def shared() -> bool:
        held = [process.metric("headgate_shares_held") for process in (first, second)]
        return sum(held) == SHARE_COUNT and min(held) > 0

    eventually("both hold shares, together all", shared)


def test_of_two_collectors_each_reads_its_share_and_takes_all_when_the_other_is_killed(
    settings: Settings, start: Callable[[str, Settings], Process], loop_kafka: str
) -> None:
    first, second = start("collect", settings), start("collect", settings)
    share_all(first, second)
    with Topic(loop_kafka, f"{settings['topics']['prefix']}.observed.log-dirs") as observed:
        eventually("all clusters are read", lambda: read_since(observed, 0) == set(CLUSTERS))
        killed = time.monotonic()
        second.kill()
        known = len(observed.entries())
        eventually("the other reads all", lambda: read_since(observed, known) == set(CLUSTERS))
    report("collect", killed)
    assert first.metric("headgate_shares_held") == SHARE_COUNT
    assert first.stop() == 0, first.output()


@pytest.mark.long  # varies `test_of_two_queries`
def test_an_actuator_that_was_frozen_carries_out_nothing_that_is_anothers_by_then(
    settings: Settings, start: Callable[[str, Settings], Process], loop_kafka: str
) -> None:
    decider = Decider(loop_kafka, settings["topics"]["prefix"])
    with ExitStack() as stack:
        proxy = stack.enter_context(TcpProxy(loop_kafka))
        proxy.cut()  # so the first has something to do still when it is frozen
        audit = stack.enter_context(Topic(loop_kafka, f"{decider.prefix}.audit"))
        quotas = stack.enter_context(Quotas(loop_kafka))
        first, second = start("act", acting(settings, proxy.address)), start("act", acting(settings, loop_kafka))
        share_all(first, second)
        decide_all(decider, 0.5)
        eventually("the second has carried out its own", lambda: 0 < len(quotas.set_to(0.5)) < len(CLUSTERS))

        first.freeze()
        frozen = time.monotonic()
        eventually("the second carries out all", lambda: len(quotas.set_to(0.5)) == len(CLUSTERS))
        report("act, frozen", frozen)
        decide_all(decider, 1.0)
        eventually("no quotas", lambda: len(quotas.set_to(1.0)) == len(CLUSTERS))
        known = len(audit.entries())
        proxy.heal()
        first.wake()
        share_all(first, second)
        eventually("the first is at work again", lambda: first.ready() == "ok\n")
        done = [entry.data for entry in audit.entries()[known:]]
        assert [each for each in done if each.get("outcome") == "applied"] == [], "all was as it should be"
        assert "Kafka no longer confirms the membership" in first.output()

        second.kill()
        killed = time.monotonic()
        decide_all(decider, 0.25)
        eventually("the first carries out all", lambda: len(quotas.set_to(0.25)) == len(CLUSTERS))
        report("act, killed", killed)
        assert first.stop() == 0, first.output()
        assert "Traceback" not in first.output(), first.output()


def test_of_two_queries_one_decides_and_the_other_goes_on_when_it_is_killed(
    settings: Settings, start: Callable[[str, Settings], Process], loop_kafka: str, tmp_path: Path
) -> None:
    prefix = settings["topics"]["prefix"]
    throttle = {"hard": {"available_bytes_below": 100_000}, "soft": {"available_bytes_below": 900_000}}
    both = {
        **settings,
        "policies": {"throttle": {**throttle, "min_hold": "0s", "validity": "2h"}},
        "stream": {**UNHURRIED, "checkpoint_dir": str(tmp_path / "checkpoint")},
    }
    with Topic(loop_kafka, f"{prefix}.decided.throttle") as decided:

        def decides(usable_bytes: int) -> None:
            produce(loop_kafka, f"{prefix}.observed.log-dirs", ("c1", reading("c1", usable_bytes)))
            factor = (usable_bytes - 100_000) / 800_000
            eventually(f"factor {factor}", lambda: [d["factor"] for d in decided.data()][-1:] == [factor])

        first, second = start("decide", both), start("decide", both)
        assert [each.metric("headgate_shares_held") for each in (first, second)] == [1, 0]
        decides(500_000)
        eventually("the second has rehearsed", lambda: "Spark is warm" in second.output())
        assert [*second.folder.rglob("rehearsal-*")] == [], "and nothing of it is left"
        assert_another_loop_is_named(loop_kafka, prefix)
        first.kill()
        killed = time.monotonic()
        decides(300_000)
        report("decide, killed", killed)
        assert second.metric("headgate_shares_held") == 1
        decisions = {each["decision_id"]: each["sequence"] for each in decided.data() if each["cluster"] == "c1"}
        sequences = list(decisions.values())
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences))), "none is lost, none is another's"
        assert second.stop() == 0, second.output()
        assert "Traceback" not in second.output(), second.output()


def assert_another_loop_is_named(loop_kafka: str, prefix: str) -> None:
    """Another checkpoint's process joins on the same prefix: it does not decide, an alert and the doctor name it."""
    connection, topics = KafkaConnection(bootstrap_servers=loop_kafka), TopicSettings(prefix=prefix)
    other = deciders_group(topics, "/a/checkpoint/of/its/own")
    with (
        Topic(loop_kafka, f"{prefix}.decided.alerts") as alerts,
        Membership(connection, other, PartitionSettings(), lambda _: None) as member,
    ):

        def told() -> list[dict[str, Any]] | None:
            member.step()
            return [alert for alert in alerts.data() if alert["alert"] == "two-loops-decide"] or None

        (alert,) = eventually("the alert is there", told)
        assert (alert["status"], alert["severity"]) == ("firing", "critical")
        assert alert["summary"] == describe_loops(find_deciders(connection, topics), prefix)
        assert member.lease.held == frozenset()


def acting(settings: Settings, watched: str) -> Settings:
    """With a client's quota for each cluster, all of one Kafka, which is reached there."""
    kafka = {"bootstrap_servers": watched, "timeout": "1s"}
    return {
        **settings,
        "clusters": {
            name: {
                "kafka": kafka,
                "quotas": {
                    "entities": [{"client_id": name, "base": BASE}],
                    "verify_interval": "1s",
                    "max_told_wait": "none",
                },
            }
            for name in CLUSTERS
        },
        "policies": {"throttle": {"hard": {"available_bytes_below": 1}}},
    }


def decide_all(decider: Decider, factor: float) -> None:
    for name in CLUSTERS:
        decider.decide(factor, cluster=name)


class Quotas(AbstractContextManager["Quotas"]):
    """The quotas of all clusters' clients."""

    def __init__(self, servers: str) -> None:
        self._client = QuotaClient(KafkaConnection(bootstrap_servers=servers), 5.0)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def set_to(self, factor: float) -> list[str]:
        """The clusters whose quota is as this factor wants it."""
        self._client.describe()
        rates = self._client.read().rates
        wanted = None if factor == 1.0 else round(BASE * factor)
        return [name for name in CLUSTERS if rates.get(Entity(client_id=name)) == wanted]


def read_since(observed: Topic, known: int) -> set[str]:
    return {data["cluster"] for data in observed.data()[known:]}


def report(what: str, since: float) -> None:
    tell(f"{what}: another had taken over after {time.monotonic() - since:.1f} s")
