"""How tests wait, and what the last line of a run says of those that were skipped."""

from types import SimpleNamespace

import pytest

from tests import progress
from tests.progress import Progress
from tests.system.waiting import eventually, watched


class Process:
    """A process of a test that has failed, or still runs."""

    def __init__(self, failed: str | None) -> None:
        self._failed = failed

    def failure(self) -> str | None:
        return self._failed


def test_a_wait_ends_when_a_process_has_failed_and_what_it_was_to_do_is_not_done() -> None:
    running, failed = Process(None), Process("headgate decide: status 2\nThe query failed 6 times in a row")
    watched.update({running, failed})
    assert eventually("a decision that was made before", lambda: True)
    with pytest.raises(AssertionError, match=r"status 2\nThe query failed 6 times.*\nwhile awaited: a decision$"):
        eventually("a decision", lambda: False)
    watched.discard(failed)
    answers = iter([False, True])
    assert eventually("a decision after a look", lambda: next(answers))


def test_the_last_line_names_each_reason_for_which_tests_were_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress._FILE, "")
    shown, lines = Progress(writes_seconds=False), list[str]()
    for number, reason in enumerate(("Java is needed", "Java is needed", "needs root")):
        skipped = (__file__, 1, f"Skipped: {reason}")
        report = SimpleNamespace(nodeid=f"tests/test_{number}.py::test", duration=0.0, skipped=True, failed=False)
        shown.pytest_runtest_logreport(SimpleNamespace(**vars(report), longrepr=skipped))  # type: ignore[arg-type]
    terminal = SimpleNamespace(write_line=lines.append)
    plugins = SimpleNamespace(get_plugin={"terminalreporter": terminal}.get)
    shown.pytest_unconfigure(SimpleNamespace(pluginmanager=plugins))  # type: ignore[arg-type]
    assert lines == ["NOT TESTED: 3 of 0 skipped: Java is needed (2); needs root (1)"]
