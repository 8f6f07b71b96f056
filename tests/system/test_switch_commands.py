"""`headgate switch …` talks with a running query through a real Kafka; a stand-in answers for the executor."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.text import Text

from deploy import cli
from policies.observations import Outcome, Reading
from policies.registry import observed_topic
from policies.switching.ledgers import IdGenerator, Layout
from policies.switching.readings import (
    SwitchBroker,
    SwitchBrokers,
    SwitchCluster,
    SwitchLease,
    SwitchPrecheck,
)
from policies.wire import observation_event
from tests.system.loop import UNHURRIED, Topic, produce
from tests.system.switching import NEW, OLD, SwitchLoop
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tests.system.zookeeper import ZooKeeper

LAYOUT = b"1\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
ACCEPTED, REJECTED, NO_ANSWER, INTERRUPTED = 0, 1, 3, 130
DIGEST = "d" * 64


class Ended(NamedTuple):
    """What a command said and how it ended."""

    status: int
    out: str
    err: str

    @property
    def plain(self) -> dict[str, Any]:
        return dict(json.loads(self.out))


@dataclass
class World:
    """A broker cluster `c1` with two BookKeeper clusters, and the loop's topics; of its parts only the query runs."""

    loop: SwitchLoop
    zookeeper: str
    sequences: Iterator[int] = field(default_factory=lambda: iter(range(1, 1000)))

    def topic(self, name: str) -> Topic:
        return Topic(self.loop.kafka, f"{self.loop.prefix}.{name}")

    def observe(self, reading: Reading) -> None:
        event = observation_event(reading, id=str(uuid.uuid4()), source="test", time=datetime.now(UTC))
        produce(self.loop.kafka, f"{self.loop.prefix}.{observed_topic(type(reading))}", (reading.cluster, event))

    def say(self, kind: type[Reading], **fields: Any) -> None:
        self.observe(kind(cluster="c1", outcome=Outcome.OK, **fields))

    def arguments(self, *arguments: str) -> list[str]:
        return ["switch", *arguments, "--cluster", "c1", "-s", str(self.loop.file)]

    def commands(self) -> list[dict[str, Any]]:
        with self.topic("commands") as topic:
            return topic.data()


@pytest.fixture(scope="module")
def world(zookeeper: ZooKeeper, loop_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    loop = SwitchLoop(loop_kafka, f"s{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("switch"))
    places = {name: f"{zookeeper.servers}/{loop.prefix}/{name}" for name in (OLD, NEW)}
    with zookeeper.client() as client:
        for name in places:
            client.ensure_path(f"/{loop.prefix}/{name}/ledgers")
            client.create(f"/{loop.prefix}/{name}/ledgers/INSTANCEID", f"id-{name}".encode())
            client.create(f"/{loop.prefix}/{name}/ledgers/LAYOUT", LAYOUT)
    watched = {
        "zookeeper": {"servers": places[OLD]},
        "bookkeeper": {"bootstrap": OLD, "clusters": {OLD: {}, NEW: {"zookeeper": {"servers": places[NEW]}}}},
    }
    loop.write({"c1": watched}, {}, UNHURRIED)
    yield World(loop, places[NEW])
    loop.close()


Switch = Callable[..., Ended]


@pytest.fixture
def switch(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Switch:
    """Runs a command in this process, as its script does."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["headgate", *world.arguments(*arguments)])
        monkeypatch.setenv("COLUMNS", "150")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ended(int(ended.value.code or 0), out, err)

    return run


@pytest.fixture(scope="module")
def query(world: World) -> World:
    """The query decides; nobody else runs."""
    world.loop.start("decide")
    return world


@contextmanager
def executor(world: World, *reports: SwitchPrecheck) -> Iterator[None]:
    """Answers each order of a precheck with the next of these reports."""
    stop, left = threading.Event(), list(reports)
    with world.topic("decided.switches") as topic:
        done = len(_orders(topic))

        def answer() -> None:
            nonlocal done
            while not stop.wait(0.05) and left:
                if len(_orders(topic)) > done:
                    done += 1
                    world.observe(left.pop(0))

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _orders(topic: Topic) -> list[dict[str, Any]]:
    return [d for d in topic.data() if d["verdict"] == "run-precheck"]


def report(**more: Any) -> SwitchPrecheck:
    about = {"source": "old", "target": "new", "ready": True, "digest": DIGEST, "valid_ms": 600_000, **more}
    return SwitchPrecheck(**{"cluster": "c1", "outcome": Outcome.OK, **about})


# Without a query


def test_without_a_query_there_is_no_answer_and_the_same_key_asks_for_it_later(world: World, switch: Switch) -> None:
    ended = switch("register", "--name", "old", "--idempotency-key", "first", "--timeout", "1")
    assert (ended.status, ended.out) == (NO_ANSWER, "")
    assert ended.err.startswith("No decision within 1 s: the query (`headgate run` or `headgate decide`) may")
    assert "--idempotency-key first" in ended.err


# With one


def test_what_was_asked_before_the_query_ran_is_answered_once_it_does(query: World, switch: Switch) -> None:
    sent = len(query.commands())
    ended = eventually("the answer", lambda: _known(switch))
    assert ended.status == ACCEPTED
    assert "A command with this key was decided before:" in ended.out
    assert "write-registry: old (zk+hierarchical://127.0.0.1:" in ended.out
    assert "is registered as active" in ended.out
    repeated = [c for c in query.commands()[sent:] if c["idempotency_key"] != "first"]
    assert repeated == []


def _known(switch: Switch) -> Ended | None:
    ended = switch("register", "--name", "old", "--idempotency-key", "first", "--timeout", "1")
    return ended if ended.status != NO_ANSWER else None


def test_a_cluster_is_registered_by_what_is_read_at_its_address(query: World, switch: Switch) -> None:
    preview = switch("register", "--name", "new", "--dry-run")
    assert (preview.status, preview.err) == (ACCEPTED, "")
    assert preview.out.startswith("preview: would: new (zk+hierarchical://")
    ended = switch("register", "--name", "new", "--actor", "ann", "--reason", "new hardware", "--json")
    assert ended.status == ACCEPTED, ended.out
    (order,) = ended.plain["decisions"]
    assert (order["verdict"], order["args"]["status"]) == ("write-registry", "standby")
    given = query.commands()[-1]
    assert (given["actor"], given["reason"]) == ("ann", "new hardware")
    assert given["args"]["uri"] == f"zk+hierarchical://{query.zookeeper}/ledgers"
    assert (given["args"]["instance_id"], given["args"]["root"]) == ("id-new", f"/{query.loop.prefix}/new/ledgers")


def _prepare(world: World) -> None:
    """All that the policy wants to know before it starts a switch."""
    world.say(SwitchLease, token=next(world.sequences), holder="test", valid_ms=600_000)
    world.say(SwitchBrokers, brokers=("b1", "b2"))
    _read_clusters(world)


def _read_clusters(world: World, old_hob: int | None = None, epoch: int | None = None) -> None:
    for name, hob in (("old", old_hob), ("new", 1)):
        root, generator = f"/{world.loop.prefix}/{name}/ledgers", IdGenerator(hob, 0, 0)
        about = {"name": name, "instance_id": f"id-{name}", "root": root, "layout": Layout.HIERARCHICAL}
        world.say(SwitchCluster, **about, generator=generator, epoch=epoch)


def test_a_person_is_shown_the_report_and_asked_and_then_it_starts_and_is_watched_to_its_end(
    query: World, switch: Switch
) -> None:
    _prepare(query)
    with executor(query, report(to_import=3, greatest_id=2), report(), report()):
        status, screen = _on_terminal(query, "start", "--target", "new", when=b"[y/N]: ", then=b"n\n")
        assert status == REJECTED, screen
        assert "Nothing is started." in screen
        previewed = switch("start", "--target", "new", "--dry-run")
        assert previewed.status == ACCEPTED, previewed.out
        assert "preview: would: the switch from old to new begins" in previewed.out
        status, screen = _on_terminal(query, "start", "--target", "new", when=b"[y/N]: ", then=b"y\n")
    assert status == ACCEPTED, screen
    for said in ("READY: old to new", "counts for 10 min", "Switch the brokers of c1 from old to new? [y/N]"):
        assert said in screen
    assert "advance: the switch from old to new begins, epoch 1" in screen
    assert "write-directive: from epoch" in screen
    assert query.commands()[-1]["precheck_digest"] == DIGEST

    known = eventually("the record", lambda: _record(switch, "triggered"))
    assert (known["target"], known["brokers"]["live"], known["brokers"]["acked"]) == ("new", 2, 0)
    assert set(known["brokers"]["awaited"]) == {"b1", "b2"}
    ended = switch("status")
    assert "registered → prechecked → [triggered] → live_dual_read" in ended.out
    assert "0 of 2" in ended.out
    assert "waits for brokers: none is known to be alive" in " ".join(ended.out.split()), (
        "the list of live brokers is older than the switch"
    )
    query.say(SwitchBrokers, brokers=("b1", "b2"), epoch=known["epoch"])
    eventually("who is late", lambda: "new: b1 is not heard of since" in " ".join(switch("status").out.split()))

    status, screen = _on_terminal(query, "status", "--watch", when=b"published ", then=signal.SIGINT)
    assert status == INTERRUPTED, screen
    assert "prechecked → [triggered] → live_dual_read" in screen
    assert "Traceback" not in screen

    again = switch("start", "--target", "new", "--yes")
    assert again.status == ACCEPTED, again.out
    assert "The switch to new is at triggered: it is driven on." in again.out
    assert query.commands()[-1]["precheck_digest"] is None, "a switch under way needs no precheck"

    with subprocess.Popen(
        [sys.executable, "-m", "deploy.cli", *query.arguments("status", "--watch", "--json")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as watching:
        try:
            assert watching.stdout is not None
            assert json.loads(watching.stdout.readline())["verdict"] == "triggered"
            query.say(SwitchBroker, broker="b1", sequence=1, epoch=known["epoch"], client_init_failed=True)
            # Brokers return only once a reading since the directive shows that they get greater ids there.
            _read_clusters(query, old_hob=9, epoch=known["epoch"])
            last = [json.loads(line) for line in watching.stdout][-1]
            assert last["verdict"] == "rejected"
            assert watching.wait(DEADLINE_SECONDS) == 0
        finally:
            watching.kill()
    assert "triggered → [rejected]" in switch("status", "--watch").out


def _record(switch: Switch, stage: str) -> dict[str, Any] | None:
    known = json.loads(switch("status", "--json").out)
    return known if known is not None and known["verdict"] == stage else None


def _on_terminal(world: World, *arguments: str, when: bytes, then: bytes | signal.Signals) -> tuple[int, str]:
    """Run a command on a terminal of 120 columns; once it shows something, type an answer, or interrupt it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "deploy.cli", *world.arguments(*arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
    )
    os.close(theirs)
    screen, due = b"", True
    try:
        with suppress(OSError):  # the terminal ends with the process
            while chunk := os.read(ours, 4096):
                screen += chunk
                if due and when in screen:
                    due = False
                    if isinstance(then, bytes):
                        os.write(ours, then)
                    else:
                        process.send_signal(then)
        status = process.wait(DEADLINE_SECONDS)
    finally:
        process.kill()
        os.close(ours)
    return status, Text.from_ansi(screen.decode().replace("\r\n", "\n")).plain
