"""Each "Try it" of the docs on real servers: a reader runs the commands of a page one by one, as they are written.

The reader is `python -m tests.system.test_try_it PAGE FOLDER` in a network of its own, where the names and ports
of the page are those of real servers.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tests.system.pulsar
from deploy.java.jars import ensure_jars
from deploy.settings.application import default_cache_dir
from tests.docs.blocks import ROOT, Block, tried
from tests.system.bookkeeper import Bookie, init_cluster
from tests.system.isolation import AVAILABLE, Metadata
from tests.system.private_net import enter, why_not_private
from tests.system.pulsar import PulsarBroker, set_up_metadata
from tests.system.pulsar_jars import ensure_pulsar_jars
from tests.system.server import zookeeper_client
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper

NAMES = {"zk-1": "127.0.0.1", "zk-2": "127.0.0.1", "zk-9": "127.0.0.9", "broker-1": "127.0.0.1"}
"""The machines of the pages, and where they are in the network of our own."""
ZOOKEEPER_PORT = 2181

_SERVES = re.compile(r"(\w+=\S+ )*(headgate (up|run|demo)|make (run|demo))\b")
"""Commands that run until Ctrl-C."""
_ASKS = re.compile(r"(curl|amtool) ")
"""What a person asks again, until there is an answer."""
_ELSEWHERE = re.compile(r"(python|\.venv/bin/python) ")
"""What `tests/docs/test_examples.py` looks at: tests and benchmarks that run in other places."""
_NUMBER = re.compile(r"\d[\d.]*")
_TIME = re.compile(r"\d\d:\d\d:\d\d [A-Z]+  ")
_STYLE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|\r")
"""What colours a terminal."""
_FILE = re.compile(r"# (\S+\.yaml)\n")


@dataclass
class Reader:
    """Somebody with a shell in a folder, and as many terminals as need be."""

    folder: Path
    _serving: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def __post_init__(self) -> None:
        bin_dir = self.folder / "bin"
        bin_dir.mkdir(parents=True)
        command = bin_dir / "headgate"
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m deploy.cli "$@"\n')
        command.chmod(0o755)
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("HEADGATE_")},
            "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "XDG_DATA_HOME": str(self.folder / "share"),
            "HEADGATE_JARS_DIR": str(default_cache_dir()),
        }

    def does(self, block: Block) -> None:
        """Write the file, run the commands, or wait for the shown output."""
        if block.language == "yaml":
            self._write(block)
        elif block.is_shell:
            for command in block.commands():
                if not _ELSEWHERE.match(command):
                    self._run(command)
        elif block.language == "text":
            for line in block.text.splitlines():
                self.sees(line)

    def _write(self, block: Block) -> None:
        named = _FILE.match(block.text)
        (self.folder / (named[1] if named else "headgate.yaml")).write_text(block.text)

    def _run(self, command: str) -> None:
        print(f"$ {command}", flush=True)  # noqa: T201
        if _SERVES.match(command) or command.endswith("&"):
            self._serve(command.removesuffix("&"))
            return
        if _ASKS.match(command):
            eventually(command, lambda: self._done(command).returncode == 0)
            return
        done = self._done(command)
        assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}{self.output()}"

    def _done(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def _serve(self, command: str) -> None:
        log, (screen, terminal) = self.folder / f"terminal-{len(self._serving)}.log", os.openpty()
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**self._environment, "COLUMNS": "1000"},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(terminal)
        log.touch()
        threading.Thread(target=_copy, args=(screen, log), name="screen", daemon=True).start()
        self._serving.append((process, log))
        if _SERVES.match(command):

            def ready() -> bool:
                assert process.poll() is None, log.read_text()
                return "ready; Ctrl-C stops" in log.read_text()

            eventually(f"{command} is ready", ready)

    def is_refused(self, block: Block, because: str) -> None:
        """Run the block's only command, which must fail with a reason."""
        (command,) = block.commands()
        done = self._done(command)
        assert done.returncode == 1, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
        assert because in done.stdout, done.stdout

    def sees(self, line: str) -> None:
        """Wait until a terminal shows a line; times and numbers may differ."""
        wanted = _NUMBER.sub("#", _TIME.sub("", line))
        eventually(line, lambda: wanted in _NUMBER.sub("#", self.output()))

    def output(self) -> str:
        return _STYLE.sub("", "".join(log.read_text(errors="replace") for _, log in self._serving))

    def stops(self) -> None:
        """Send Ctrl-C to every terminal; each process must end in order."""
        for process, log in reversed(self._serving):
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of its processes
            eventually("a terminal ends", lambda process=process: process.poll() is not None)  # type: ignore[misc]
            text = log.read_text(errors="replace")
            assert process.returncode in (0, 130), text
            assert "Traceback" not in text, text

    def kills(self) -> None:
        for process, _ in self._serving:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _copy(screen: int, log: Path) -> None:
    """Write everything that a terminal shows to a log, until no process has the terminal any more."""
    with log.open("ab", buffering=0) as output, suppress(OSError):
        while shown := os.read(screen, 65_536):
            output.write(shown)
    os.close(screen)


Play = Callable[[Reader, list[Block], ExitStack], None]
"""Does a page's blocks, with the servers it needs."""


def throttle(reader: Reader, blocks: list[Block], _stack: ExitStack) -> None:
    """A file fills a disk in memory. test_demo.py runs the whole as `headgate demo`."""
    demo, *by_hand = blocks
    assert demo.text == "headgate demo\n"
    for block in by_hand:
        reader.does(block)


def bookie_disks(reader: Reader, blocks: list[Block], _stack: ExitStack) -> None:
    """test_demo.py runs the whole as `make demo-pulsar` does."""
    demo, *elsewhere = blocks
    assert demo.text == "make demo-pulsar\n"
    for block in elsewhere:
        reader.does(block)


def isolation(reader: Reader, blocks: list[Block], stack: ExitStack) -> None:
    """A ZooKeeper with two bookies in the group of a namespace, and a third one without a rack."""
    stack.enter_context(_zookeeper(reader, "zk-1"))
    client = stack.enter_context(zookeeper_client(f"zk-1:{ZOOKEEPER_PORT}"))
    metadata = Metadata(client)
    client.ensure_path(AVAILABLE)
    client.create("/bookies", b"{}")
    for bookie in ("bk1:3181", "bk2:3181"):
        metadata.register(bookie)
        metadata.assign(bookie, "shared")
    metadata.isolate("t/ns", "shared")
    for block in blocks:
        if block.language == "text":
            metadata.register("stray:3181")
        reader.does(block)
    metadata.assign("stray:3181", "shared")
    reader.sees("resolved: unassigned-bookie")


def sessions(reader: Reader, blocks: list[Block], stack: ExitStack) -> None:
    """A Pulsar broker, whose process is stopped for longer than its session lasts."""
    folder, bookkeeper = reader.folder / "pulsar", _jars("bookkeeper")
    stack.enter_context(_zookeeper(reader, "zk-1"))
    servers = f"zk-1:{ZOOKEEPER_PORT}"
    pulsar = ensure_pulsar_jars(default_cache_dir().parent)
    tests.system.pulsar.CLUSTER = "messaging"  # as the page names it
    set_up_metadata(folder / "set-up", pulsar, servers)
    stack.enter_context(Bookie(folder / "bookie", bookkeeper, servers))
    broker = PulsarBroker(folder / "broker", pulsar, servers, ensemble_size=1)
    broker.web_port = 8080
    stack.enter_context(broker)
    for block in blocks:
        reader.does(block)
        if "headgate up" in block.text:
            with broker.frozen():
                reader.sees("sessions reconnect  Broker")  # `hold` before it only where the loop is faster than T
            reader.sees("sessions recover  Broker")


def alertmanager(reader: Reader, blocks: list[Block], _stack: ExitStack) -> None:
    """A real Alertmanager, with the configuration of the references."""
    (reader.folder / "docs").symlink_to(ROOT / "docs")
    for block in blocks:
        reader.does(block)


def precheck(reader: Reader, blocks: list[Block], stack: ExitStack) -> None:
    """Two BookKeeper clusters, each with its own ZooKeeper, and an operator who follows the first report."""
    for number, name in enumerate(("zk-1", "zk-9")):
        stack.enter_context(_zookeeper(reader, name))
        init_cluster(reader.folder / f"init-{number}", _jars("bookkeeper"), f"{name}:{ZOOKEEPER_PORT}")
    settings, check = blocks
    reader.does(settings)
    reader.is_refused(check, "idgen_behind")
    target = stack.enter_context(zookeeper_client(f"zk-9:{ZOOKEEPER_PORT}"))
    target.create("/ledgers/idgen-long/HOB-0000000001", makepath=True)
    reader.does(check)


PLAYS: dict[str, Play] = {
    "docs/alertmanager.md": alertmanager,
    "docs/bookie-disks.md": bookie_disks,
    "docs/isolation.md": isolation,
    "docs/sessions.md": sessions,
    "docs/switching.md": precheck,
    "docs/throttle.md": throttle,
}
"""Every page with something to try."""


def _jars(group: str) -> tuple[Path, ...]:
    return ensure_jars(group, default_cache_dir())


def _zookeeper(reader: Reader, name: str) -> ZooKeeper:
    """A ZooKeeper at the port and the name of the pages."""
    at = {"clientPortAddress": NAMES[name]}
    return ZooKeeper(reader.folder / name, _jars("bookkeeper"), port=ZOOKEEPER_PORT, properties=at)


def main() -> None:
    """Run a page's blocks in a folder."""
    page, folder = sys.argv[1], Path(sys.argv[2])
    enter(NAMES)
    reader = Reader(folder)
    with ExitStack() as stack:
        stack.callback(reader.kills)
        PLAYS[page](reader, tried(page), stack)
        reader.stops()


pytestmark = [pytest.mark.usefixtures("kafka_jars", "bookkeeper_jars")]

SHORT = frozenset({"docs/switching.md"})
"""Those that need no loop of their own run with the other system tests."""


@pytest.mark.parametrize(
    "page", [page if page in SHORT else pytest.param(page, marks=pytest.mark.long) for page in sorted(PLAYS)]
)
def test_what_a_page_says_to_try_works_as_it_stands(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if (why := why_not_private()) is not None:
        pytest.skip(why)
    if page == "docs/alertmanager.md" and shutil.which("prometheus-alertmanager") is None:
        pytest.skip("Debian's prometheus-alertmanager is not installed")
    if page == "docs/sessions.md":
        request.getfixturevalue("pulsar_jars")
    command = [sys.executable, "-m", "tests.system.test_try_it", page, str(tmp_path / "reader")]
    reader = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    with suppress(OSError):
        Path("/tmp/try").rmdir()  # where docs/throttle.md mounts its disk, which nobody else has seen
    assert reader.returncode == 0, f"{reader.stdout}\n{reader.stderr}"


if __name__ == "__main__":
    main()
