"""Processes of this machine: their command lines, their descendants, whether they run, and how to freeze them."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.system.waiting import eventually


def descendants(pid: int) -> Iterator[int]:
    """Pids of all processes that a process started, directly or not."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return
    for task in tasks:
        try:
            children = (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in map(int, children):
            yield child
            yield from descendants(child)


def is_running(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def command_line(pid: int) -> bytes:
    """The command line of a process; empty after its end."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def listening_ports(pids: Iterable[int]) -> set[int]:
    """The TCP ports on which some processes listen."""
    sockets = {link for pid in pids for link in open_sockets(pid)}
    found = set[int]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                found.add(int(local.rpartition(":")[2], 16))
    return found


def open_sockets(pid: int) -> list[str]:
    """The sockets of a process, as `socket:[INODE]`; none after its end."""
    links: list[str] = []
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                links.append(str(file.readlink()))
    return [link for link in links if link.startswith("socket:")]


def freeze(pid: int) -> None:
    """Stop a process (SIGSTOP), and return when all its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    eventually("it is frozen", lambda: _has_stopped(pid))


def _has_stopped(pid: int) -> bool:
    """Whether none of its threads runs."""
    try:
        stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread that ended just now
    return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)
