"""What this process must have: without it Spark's JVM would fail again and again without a word about the cause."""

import os
import pwd
import resource
from contextlib import suppress
from pathlib import Path

from policies.errors import UserError
from policies.units import human_bytes

LEAST_FILES = 1024
_MOST_FILES = 65_536
"""What this process asks for at most: some systems refuse more, though they name no limit."""
LEAST_BYTES = 600_000_000
"""The JVM with its heap, and one Python worker; a whole query takes about 1 GB (docs/sizing.md)."""
_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 2**60


def require_resources() -> None:
    """Raise the limit of open files as far as this process may, and refuse limits with which no query can start.

    Raises:
        UserError: a limit is too low, or the user has no name; the message has the remedy.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise UserError(
            f"user {os.geteuid()} has no name on this machine, and Spark needs one: add a line to /etc/passwd, or run "
            "Headgate as a user that has one"
        ) from None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _is_below(soft, 4 * LEAST_FILES):
        enough = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
            soft = enough
    if _is_below(soft, LEAST_FILES):
        raise UserError(
            f"this process may open {soft} files, and the query needs {LEAST_FILES}: raise the limit (`ulimit -n "
            f"{LEAST_FILES}`; LimitNOFILE= of systemd; --ulimit nofile= of Docker)"
        )
    for limit_bytes, remedy in _memory_limits():
        if limit_bytes < LEAST_BYTES:
            raise UserError(
                f"this process may use {human_bytes(limit_bytes)} of memory, and the query needs "
                f"{human_bytes(LEAST_BYTES)} to start, 1.0 GB to run: raise the limit ({remedy})"
            )


def _is_below(limit: int, least: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < least


def _memory_limits() -> list[tuple[int, str]]:
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    found = [] if address_space == resource.RLIM_INFINITY else [(address_space, "`ulimit -v`")]
    remedy = "MemoryMax= of systemd; resources.limits.memory of Kubernetes; --memory of Docker"
    return found + [(limit, remedy) for limit in map(_read_limit, _cgroup_files()) if limit is not None]


def _cgroup_files() -> list[Path]:
    """The files with the memory limit of this process's control group and those around it."""
    own = ""
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")
    folder = _CGROUP / own.lstrip("/")
    groups = [each for each in (folder, *folder.parents) if each.is_relative_to(_CGROUP)]
    return [*(group / "memory.max" for group in groups), _CGROUP / "memory" / "memory.limit_in_bytes"]


def _read_limit(file: Path) -> int | None:
    """The limit in bytes; None if the file is missing or names none."""
    try:
        limit = int(file.read_text())
    except (OSError, ValueError):
        return None
    return limit if limit < _UNLIMITED else None
