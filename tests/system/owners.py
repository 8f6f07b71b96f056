"""Members with an ownership agent: within the test, and as the example service in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from connectors.sessions.agent import OwnershipAgent, OwnershipCallbacks
from connectors.sessions.agent.contact import read_session
from policies.observations import Reading
from policies.sessions.decisions import OwnershipReason, SessionDecision
from policies.sessions.readings import Recovery, ZkSession
from tests.system.processes import freeze
from tests.system.server import close
from tests.system.waiting import DEADLINE_SECONDS, eventually

T_SECONDS = 4.0
BUNDLE = "/namespace/t/ns/0x00000000_0xffffffff"


def value_of(member: str) -> bytes:
    return json.dumps({"brokerId": member}).encode()


class Application(OwnershipCallbacks):
    """Notes what it is asked to do; `failing` says how often each fails first, `before` what happens meanwhile."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.failing: dict[str, int] = {}
        self.before: dict[str, Callable[[], None]] = {}

    def preload(self, path: str) -> None:
        self._note("preload", path)

    def unload(self, path: str, reason: OwnershipReason | None) -> None:
        self._note("unload", "released" if reason is None else reason.value)

    def republish(self) -> None:
        self._note("republish", "")

    def invalidate_caches(self) -> None:
        self._note("invalidate", "")

    def shut_down(self, decision: SessionDecision) -> None:
        self._note("shut down", decision.reason.value)

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _note(self, name: str, what: str) -> None:
        self.calls.append((name, what))
        if name in self.before:
            self.before.pop(name)()
        if self.failing.get(name, 0) > 0:
            self.failing[name] -= 1
            raise RuntimeError(f"{name} fails as the test wants it")


@dataclass
class Member:
    """One member, within the test."""

    name: str
    client: KazooClient
    application: Application
    agent: OwnershipAgent = field(init=False)
    reports: list[Reading] = field(default_factory=list)

    @property
    def session(self) -> str | None:
        return read_session(self.client)

    @property
    def calls(self) -> list[str]:
        return self.application.names()

    def own(self, path: str = BUNDLE) -> bool:
        return self.agent.acquire(path, value_of(self.name))

    def take(self, path: str = BUNDLE) -> None:
        """Own the bundle, however often the agent refuses at first."""
        eventually(f"that {self.name} owns {path}", lambda: self.own(path) or None)

    def owns(self, path: str = BUNDLE) -> bool:
        return path in self.agent.owned()

    def reported(self) -> list[tuple[str, str]]:
        return [(said.action.value, said.result.value) for said in self.recoveries()]

    def recoveries(self) -> list[Recovery]:
        return [said for said in self.reports if isinstance(said, Recovery)]

    def sessions_told(self) -> list[str | None]:
        return [said.session for said in self.reports if isinstance(said, ZkSession)]

    def has_new_session(self, old: str | None) -> bool:
        return self.session is not None and self.session != old


@contextmanager
def member(servers: str, name: str = "b1:8080", timeout_seconds: float = T_SECONDS, **options: Any) -> Iterator[Member]:
    """A connected member; `options` are those of the agent."""
    client = KazooClient(
        servers, timeout=timeout_seconds, connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2)
    )
    one = Member(name, client, Application())
    one.agent = OwnershipAgent(client, name, one.application, report=one.reports.append, **options)
    with one.agent:
        client.start(timeout=DEADLINE_SECONDS)
        try:
            yield one
        finally:
            one.agent.close()
            close(client)


class BundleService:
    """The example service, in a process of its own."""

    def __init__(self, servers: str, name: str, folder: Path, *options: str, bundles: str = "t/ns/1") -> None:
        self.name = name
        self.log = folder / f"{name.replace(':', '-')}.jsonl"
        self._console = folder / f"{name.replace(':', '-')}.console"
        self._lines: list[dict[str, Any]] = []
        self._read_bytes = 0
        arguments = ["--zookeeper", servers, "--member", name, "--bundles", bundles, "--log", str(self.log)]
        with self._console.open("ab") as console:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.examples.bundle_service", *arguments, *options],
                stdout=console,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.wait()

    def freeze(self) -> None:
        freeze(self.process.pid)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; returns the exit status."""
        eventually(f"{self.name} has ended", lambda: self.process.poll() is not None)
        return int(self.process.returncode)

    def lines(self, did: str | None = None) -> list[dict[str, Any]]:
        """All lines of an event so far."""
        if self.log.exists():
            with self.log.open("rb") as log:
                log.seek(self._read_bytes)
                whole = log.read().rpartition(b"\n")
            self._read_bytes += len(whole[0]) + len(whole[1])
            self._lines += map(json.loads, whole[0].splitlines())
        return [line for line in self._lines if did in (None, line["did"])]

    def await_line(self, did: str, after: float = 0.0) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            assert self.process.poll() is None, self._console.read_text()
            return next((line for line in self.lines(did) if line["at"] > after), None)

        return eventually(f"{self.name} did {did}", found)


def overlap_seconds(one: BundleService, other: BundleService, gap_seconds: float = 0.5) -> float:
    """How long both served the same bundle."""
    return sum(
        max(0.0, min(end, other_end) - max(start, other_start))
        for start, end in _spans(one, gap_seconds)
        for other_start, other_end in _spans(other, gap_seconds)
    )


def _spans(service: BundleService, gap_seconds: float) -> list[tuple[float, float]]:
    spans: list[tuple[float, float]] = []
    for at in (line["at"] for line in service.lines("serve")):
        if spans and at - spans[-1][1] <= gap_seconds:
            spans[-1] = (spans[-1][0], at)
        else:
            spans.append((at, at))
    return spans
