"""How the command ends when something goes wrong: what is said, and what is not."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from connectors.redaction import secret
from deploy import cli
from policies.units import UserError
from tests.cases import for_each

SECRET = "hunter2-never-shown"
ROOT = Path(__file__).parents[2]


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        variable = "only-in-" + "a-variable"
        if variable:
            raise error

    return command


@for_each(
    ("error", "status", "says"),
    [
        (UserError(f"kafka: x\x1b[2J {SECRET}"), 2, "kafka: x\\x1b[2J ***"),
        (RuntimeError(f"x\x1b[2J {SECRET}"), 1, "RuntimeError: x\\x1b[2J ***"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(3), 3, ""),
    ],
)
def test_what_went_wrong_shows_no_secret_no_variables_and_nothing_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int, says: str
) -> None:
    secret(SecretStr(SECRET), None, "here")
    assert cli._run_guarded(raising(error)) == status
    said = capsys.readouterr().err
    assert says in said
    assert [part for part in (SECRET, "only-in-a-variable", "\x1b") if part in said] == []


def test_a_failing_thread_says_so_alike(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", cli._print_thread_traceback)
    secret(SecretStr(SECRET), None, "here")
    thread = threading.Thread(target=raising(RuntimeError(SECRET)))
    thread.start()
    thread.join()
    said = capsys.readouterr().err
    assert "RuntimeError: ***" in said
    assert SECRET not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["check"]])
def test_output_that_nobody_can_take_is_said_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "deploy.cli", *arguments]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == "the output cannot be written: No space left on device"
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["--help >&-", "--help 2>&-", "--version <&- >&- 2>&-"])
def test_streams_that_are_closed_lead_nowhere(command: str) -> None:
    shell = ["sh", "-c", f'exec "$0" -m deploy.cli {command}', sys.executable]
    ended = subprocess.run(shell, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_no_file_of_ours_gets_the_number_of_a_stream_that_is_closed() -> None:
    script = "from deploy import cli; cli._settle_streams(); raise SystemExit(open('/dev/zero').fileno() < 3)"
    command = ["sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, script]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 0
