"""Clocks of processes that jump while they run, by a small preloaded library that adds to the time of day.

libfaketime cannot be used: it leaves out waits of C11, which librdkafka uses, so that those last as long as the jump.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("leap.c")


def why_no_leaps() -> str | None:
    """Why clocks cannot jump here; None if they can."""
    if not Path("/proc/self/maps").exists():
        return "the library is written for Linux"
    return None if shutil.which("gcc") else "gcc is not installed"


class Clocks:
    """A clock for each process, correct at first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = folder / "leap.so"
        folder.mkdir(parents=True)
        command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)

    def environment(self, part: str) -> dict[str, str]:
        """Variables for a process and its children."""
        if not (self._folder / part).exists():
            self.jump(part, 0)
        return {"LD_PRELOAD": str(self._library), "LEAP_FOLDER": str(self._folder / part)}

    def jump(self, part: str, seconds: int) -> None:
        """Set a process's clock ahead by `seconds` from now on: that of its JVM, and that of all others."""
        for program in ("java", "others"):
            self._write(part, program, seconds)

    def _write(self, part: str, program: str, seconds: int) -> None:
        """Write in place, because processes map the file."""
        path = self._folder / part / program
        path.parent.mkdir(exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(file, struct.pack("l", seconds), 0)
        finally:
            os.close(file)
