"""Shows the progress of the tests live in the terminal, also when workers run them.

System tests get a line after five seconds and at their end, and a line for each long wait. Other tests keep their dots.
`--write-seconds` notes how long each file took; the next run starts with the longest file, so that all workers end at
about the same time.
"""

import json
import os
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

_FILE = "TESTS_PROGRESS"
"""Names, to workers, the file whose lines are shown."""
_SYSTEM = "tests/system/"
_SECONDS = Path(__file__).parent / "system" / "seconds.json"
_SLOW_SECONDS = 5.0
_LOOK_SECONDS = 0.5


def tell(line: str) -> None:
    """Show a line about the running test in the terminal, if one is attached."""
    if _FILE in os.environ:
        name = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].rpartition("/")[2]
        with Path(os.environ[_FILE]).open("a") as file:
            file.write(f"{line} ({name})\n")


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Tests by the last noted seconds of their file; unknown files come first."""
    seconds: dict[str, float] = json.loads(_SECONDS.read_text())
    return sorted(items, key=lambda item: -seconds.get(_file(item.nodeid), float("inf")))


class Progress:
    """Prints lines from the beginning of the run to its end, only where pytest writes to a terminal, not in workers."""

    def __init__(self, *, writes_seconds: bool) -> None:
        self._writes_seconds = writes_seconds
        self._seconds: dict[str, float] = defaultdict(float)
        self._terminal = os.fdopen(os.dup(1), "w", buffering=1)  # what tests print is caught, and this is not
        self._began = time.monotonic()
        self._running: dict[str, float] = {}
        self._skipped: Counter[str] = Counter()
        self._shown: set[str] = set()
        self._ended = self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="progress", daemon=True)
        handle, name = tempfile.mkstemp(prefix="headgate-tests-", suffix=".progress")
        os.close(handle)
        self._file = Path(name)
        os.environ[_FILE] = name

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._begin(len(session.items))

    @pytest.hookimpl(optionalhook=True)  # absent with `-p no:xdist`
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self._begin(len(ids))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if nodeid.startswith(_SYSTEM):
            self._running[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_file(report.nodeid)] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1
        if report.failed:
            self._show(f"FAILED  {_short(report.nodeid)} ({report.when})")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._ended += 1
        began = self._running.pop(nodeid, None)
        if nodeid in self._shown and began is not None:
            seconds = time.monotonic() - began
            self._show(f"ends    {_short(nodeid)} after {seconds:.0f} s ({self._ended} of {self._count})")

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no dots between the lines of system tests."""
        is_plain = report.nodeid.startswith(_SYSTEM) and report.when == "call" and report.passed
        return ("passed", "", "PASSED") if is_plain else None

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if self._writes_seconds:
            known = json.loads(_SECONDS.read_text()) | {file: round(took) for file, took in self._seconds.items()}
            present = {file: took for file, took in known.items() if (config.rootpath / file).exists()}
            _SECONDS.write_text(json.dumps(present, indent=2, sort_keys=True) + "\n")
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        os.environ.pop(_FILE, None)
        self._file.unlink(missing_ok=True)
        self._terminal.close()
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        if self._skipped and terminal is not None:  # nobody must take a green run for one in which all was tested
            reasons = "; ".join(f"{reason} ({count})" for reason, count in self._skipped.most_common())
            terminal.write_line(f"NOT TESTED: {self._skipped.total()} of {self._count} skipped: {reasons}")

    def _begin(self, count: int) -> None:
        self._count = count
        if self._thread.ident is None:
            self._thread.start()

    def _look(self) -> None:
        with self._file.open() as lines:
            while not self._stop.wait(_LOOK_SECONDS):
                for nodeid, began in list(self._running.items()):
                    if nodeid not in self._shown and time.monotonic() - began > _SLOW_SECONDS:
                        self._shown.add(nodeid)
                        self._show(f"runs    {_short(nodeid)}")
                for line in lines:
                    self._show(line.rstrip())

    def _show(self, line: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        with suppress(OSError):  # nobody looks any more
            self._terminal.write(f"\n[{minutes:2}:{seconds:02}] {line}")


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _short(nodeid: str) -> str:
    return nodeid.removeprefix(_SYSTEM)
