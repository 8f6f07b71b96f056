"""The pytest plugin: records which tests see which mutant, or lets those tests try each mutant in a forked process."""

import os
import resource
import signal
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.mutate import switch

FOLDER, PART = "HEADGATE_MUTANTS", "HEADGATE_MUTANTS_PART"
"""Environment variables: the folder of the files below; the part of the work that this process does, `0/2`."""
KILLED = "killed"
_SURVIVED, _UNDECIDED = 0, 3
"""Exit codes of the process that tries a mutant."""
SEEN, PASSED, TRIED = "seen", "passed", "tried"
"""Files: (mutant, test) that see each other; seconds of each test that passed; result of each mutant."""
_MOST_BYTES = 4 << 30
_MOST_SECONDS = 60
"""Processor time after which a mutant gets no further test: it is undecided, which counts as not killed."""


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
    """Runs a part of the tests, and notes each test that passed, and how long it took."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of this part."""
        items[:] = [each for each in items if zlib.crc32(each.nodeid.encode()) % self.parts == self.part]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Let the switch name the test that begins."""
        switch.begin(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that passed."""
        if report.when == "call" and report.passed:
            with (self.folder / PASSED).open("a") as file:
                file.write(f"{report.duration}\t{report.nodeid}\n")


class Trial(_Half):
    """Lets the tests that see a mutant run while it is on, until one fails.

    One row of each table runs before the second rows do, and the shortest tests first.
    """

    has_failed = False
    seconds: Mapping[str, float]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test failed."""
        self.has_failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each mutant of this part in a process of its own."""
        self.seconds = {test: float(took) for took, test in read_pairs(self.folder / PASSED)}
        items = {item.nodeid: item for item in session.items if item.nodeid in self.seconds}
        seen: dict[int, list[pytest.Item]] = defaultdict(list)
        for number, test in read_pairs(self.folder / SEEN):
            if test in items:
                seen[int(number)].append(items[test])
        for mutant in sorted(seen)[self.part :: self.parts]:
            result = self._try(mutant, self._sort(seen[mutant]))
            with (self.folder / TRIED).open("a") as file:
                file.write(f"{mutant}\t{result}\n")
        return True

    def _sort(self, items: Iterable[pytest.Item]) -> list[pytest.Item]:
        rows: Counter[str] = Counter()
        order: list[tuple[int, int, pytest.Item]] = []
        for item in sorted(items, key=lambda each: self.seconds[each.nodeid]):
            function = item.nodeid.partition("[")[0]
            order.append((rows[function], len(order), item))
            rows[function] += 1
        return [item for _, _, item in sorted(order)]

    def _try(self, number: int, items: list[pytest.Item]) -> str:
        """Run the tests in a forked process; a signal that ends it kills the mutant, too."""
        child = os.fork()
        if child:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return {_SURVIVED: f"{len(items)} tests see it", _UNDECIDED: "undecided"}.get(status, KILLED)
        status = 1
        try:
            os.dup2(nowhere := os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(nowhere, 2)
            resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
            switch.turn_on(number)
            status = self._run(items)
        finally:
            os._exit(status)

    def _run(self, items: list[pytest.Item]) -> int:
        begun = time.process_time()
        for item, following in zip(items, [*items[1:], None], strict=True):
            if time.process_time() - begun > _MOST_SECONDS:
                return _UNDECIDED
            # A test that takes ten times as long does not end: the signal ends the process.
            signal.setitimer(signal.ITIMER_PROF, 5 + 10 * self.seconds[item.nodeid])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.has_failed:
                return 1
        return _SURVIVED


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the lines of a file, each split at its first tab; none if there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(first, second) for first, _, second in (line.partition("\t") for line in lines)]
