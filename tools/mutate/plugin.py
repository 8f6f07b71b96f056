"""The pytest plugin: records which tests see which mutant, or lets those tests try each mutant in a forked process."""

import os
import resource
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.mutate import switch

FOLDER, PART = "HEADGATE_MUTANTS", "HEADGATE_MUTANTS_PART"
"""Environment variables: the folder of the files below; the part of the work that this process does, `0/2`."""
KILLED = "killed"
SEEN, PASSED, TRIED = "seen", "passed", "tried"
"""Files: (mutant, test) that see each other; seconds of each test that passed; result of each mutant."""
_MOST_BYTES = 4 << 30
_MOST_SECONDS = 60
"""Processor time after which a mutant gets no further test. A test that does not end by itself is killed soon after."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the half that does the work of this run."""
    half = Recording if switch.SEEN in os.environ else Trial
    config.pluginmanager.register(half(Path(os.environ[FOLDER]), *map(int, os.environ[PART].split("/"))))


@dataclass(eq=False)
class _Half:
    folder: Path
    part: int
    parts: int


class Recording(_Half):
    """Runs a part of the test files, and notes each test that passed, and how long it took."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of this part's files."""
        items[:] = [each for each in items if zlib.crc32(each.path.as_posix().encode()) % self.parts == self.part]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that passed."""
        if report.when == "call" and report.passed:
            with (self.folder / PASSED).open("a") as file:
                file.write(f"{report.duration}\t{report.nodeid}\n")


class Trial(_Half):
    """Lets the tests that see a mutant run while it is on, the shortest first, until one fails."""

    has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test failed."""
        self.has_failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each mutant of this part in a process of its own."""
        seconds = {test: float(took) for took, test in read_pairs(self.folder / PASSED)}
        items = {item.nodeid: item for item in session.items if item.nodeid in seconds}
        seen: dict[int, list[pytest.Item]] = defaultdict(list)
        for number, test in sorted(read_pairs(self.folder / SEEN), key=lambda pair: seconds.get(pair[1], 0.0)):
            if test in items:
                seen[int(number)].append(items[test])
        for mutant in sorted(seen)[self.part :: self.parts]:
            result = KILLED if self._is_killed(mutant, seen[mutant]) else f"seen by {len(seen[mutant])} tests"
            with (self.folder / TRIED).open("a") as file:
                file.write(f"{mutant}\t{result}\n")
        return True

    def _is_killed(self, number: int, items: list[pytest.Item]) -> bool:
        child = os.fork()
        if child:
            return os.waitpid(child, 0)[1] != 0
        status = 1
        try:
            os.dup2(nowhere := os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(nowhere, 2)
            begun = time.process_time()
            at_most = int(begun) + 2 * _MOST_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (at_most, at_most))
            resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
            switch.turn_on(number)
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.has_failed or time.process_time() - begun > _MOST_SECONDS:
                    break
            status = int(self.has_failed)
        finally:
            os._exit(status)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the lines of a file, each split at its first tab; none if there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(first, second) for first, _, second in (line.partition("\t") for line in lines)]
