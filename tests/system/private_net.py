"""A network of one's own, in which the names and ports of the docs are those of real servers on this machine.

Linux gives a process its own loopback, its own mounts and so its own /etc/hosts: what listens on `zk-1:2181` here is
seen by nobody else, and nobody else's server is in the way.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x0002_0000, 0x1000_0000, 0x4000_0000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x4_0000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


def why_not_private() -> str | None:
    """Why a process cannot have its own network here, as the reason to skip a test; None if it can."""
    tried = subprocess.run(
        [sys.executable, "-c", "from tests.system.private_net import enter; enter({'somebody': '127.0.0.1'})"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    return None if tried.returncode == 0 else f"no network of our own: {tried.stderr.strip().splitlines()[-1]}"


def enter(names: Mapping[str, str]) -> None:
    """Move this process to a network of its own, for good, and give names to addresses there.

    Call it before any thread starts. Raises OSError where the system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    own = _CLONE_NEWUSER if os.geteuid() != 0 else 0
    user, group = os.geteuid(), os.getegid()
    _checked(libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET | own))
    if own:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _checked(libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    known = {"localhost": "127.0.0.1", socket.gethostname(): "127.0.0.1"}
    hosts = "".join(f"{address} {name}\n" for name, address in {**known, **names}.items())
    file = Path(f"/dev/shm/hosts-{os.getpid()}")
    file.write_text(hosts)
    _checked(libc.mount(os.fsencode(file), b"/etc/hosts", None, _MS_BIND, None))
    file.unlink()


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
