"""Finding Java, and running servers that leave nothing behind; with stand-ins for the Java launcher."""

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.java.jvm import JvmCommand, JvmProcess, end_orphan, find_java, tail
from policies.units import UserError
from tests.system.processes import is_running

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 120.0

# Java's command line as far as we use it: `-version`, or flags, `-cp`, a class path, a main class and its arguments.
# The kernel splits the first line at blanks, and the path of this Python may have one.
FAKE_JAVA = f"""#!/bin/sh
'''exec' '{sys.executable}' -S "$0" "$@"
' '''
import os, signal, sys
if sys.argv[1:] == ["-version"]:
    print('openjdk version "17.0.15" 2025-04-15', file=sys.stderr)
    sys.exit()
main = sys.argv[sys.argv.index("-cp") + 2]
if main == "Stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("main", main, flush=True)
os.write(os.open(os.environ["FAKE_JAVA_STARTED"], os.O_RDWR), b"1")
if main == "Failing":
    sys.exit(3)
signal.sigwait((signal.SIGUSR1,))
"""


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], PATIENCE_SECONDS)[0])


def install_java(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    return java


def java_that_says(line: str, exit_code: int = 0) -> str:
    return f"#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Da=b' >&2\necho '{line}' >&2\nexit {exit_code}\n"


@dataclass(frozen=True)
class FakeJava:
    """What stands in for Java tells through a pipe that it has started."""

    started: int

    def await_start(self) -> None:
        assert is_readable(self.started), "the process has not started"
        os.read(self.started, 1)

    def start(self, run_dir: Path, main_class: str = "Server") -> JvmProcess:
        process = JvmProcess(JvmCommand(main_class, (Path("a.jar"), Path("b.jar"))), run_dir)
        self.await_start()
        return process


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJava]:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    install_java(tmp_path / "jdk", FAKE_JAVA)
    os.mkfifo(tmp_path / "started")
    monkeypatch.setenv("FAKE_JAVA_STARTED", str(tmp_path / "started"))
    descriptor = os.open(tmp_path / "started", os.O_RDWR)
    yield FakeJava(descriptor)
    os.close(descriptor)


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('java version "21" 2023-09-19 LTS', None),
        ('openjdk version "24-ea" 2025-03-18', None),
        ('openjdk version "1.8.0_402"', "{java} is Java 8: install Java 17"),
        ('openjdk version "11.0.22" 2024-01-16', "{java} is Java 11: install Java 17"),
        ("Could not reserve enough space for 4KB object heap", r"cannot start \(Could not reserve .* heap\): "),
        ("Unable to locate a Java Runtime.", "{java} is no working Java"),
    ],
)
def test_a_java_that_is_too_old_or_does_not_run_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, refusal: str | None
) -> None:
    java = install_java(tmp_path, java_that_says(line, exit_code=0 if "version" in line else 1))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if refusal is None:
        assert find_java() == java
    else:
        with pytest.raises(UserError, match=refusal.format(java=java)):
            find_java()


def test_java_is_taken_from_path_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = install_java(tmp_path, java_that_says('openjdk version "17"'))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}:{os.environ['PATH']}")
    assert find_java() == java


def test_missing_java_says_what_to_install_or_names_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UserError, match=f"JAVA_HOME is {tmp_path}, but there is no {tmp_path}/bin/java"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(UserError, match=r"none was found: install Java 17 .*apt-get install .* or set JAVA_HOME"):
        find_java()


def test_server_runs_until_terminated(fake_java: FakeJava, tmp_path: Path) -> None:
    process = fake_java.start(tmp_path / "run")
    assert process.is_alive
    assert os.getsid(process.pid) == process.pid
    assert (tmp_path / "run" / "jvm.pid").read_text() == f"{process.pid}\n"
    process.request_end()
    assert process.wait(20)
    assert process.exit_code == -signal.SIGTERM
    assert not is_running(process.pid)


def test_server_that_does_not_heed_is_killed(fake_java: FakeJava, tmp_path: Path) -> None:
    process = fake_java.start(tmp_path / "run", "Stubborn")
    process.request_end()
    assert not process.wait(0.1)
    process.kill()
    assert process.exit_code == -signal.SIGKILL


def test_server_that_ends_by_itself_shows_code_and_words(fake_java: FakeJava, tmp_path: Path) -> None:
    process = fake_java.start(tmp_path / "run", "Failing")
    assert process.wait(20)
    assert process.exit_code == 3
    assert process.console_tail() == ["main Failing"]
    process.request_end()
    process.kill()


def test_old_temporary_files_are_cleared_at_start(fake_java: FakeJava, tmp_path: Path) -> None:
    (tmp_path / "run" / "tmp").mkdir(parents=True)
    (tmp_path / "run" / "tmp" / "libnative.so").touch()
    process = fake_java.start(tmp_path / "run")
    process.kill()
    assert list((tmp_path / "run" / "tmp").iterdir()) == []


def test_the_server_of_a_killed_process_is_found_by_its_run_dir_and_ended(fake_java: FakeJava, tmp_path: Path) -> None:
    script = (
        "import signal; from pathlib import Path; import deploy.java.jvm as jvm\n"
        f"process = jvm.JvmProcess(jvm.JvmCommand('Server', ()), Path({str(tmp_path)!r}))\n"
        "print(process.pid, flush=True); signal.sigtimedwait((), 120)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        fake_java.await_start()
        parent.kill()
    assert is_running(pid)
    assert end_orphan(tmp_path) == pid
    assert not is_running(pid)
    assert end_orphan(tmp_path) is None


def test_a_server_whose_parent_was_killed_before_it_wrote_the_pid_is_awaited(tmp_path: Path) -> None:
    with (tmp_path / "jvm.pid").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ending = threading.Timer(0.05, fcntl.flock, (held, fcntl.LOCK_UN))
        ending.start()
        assert end_orphan(tmp_path) is None
        ending.join()


@pytest.mark.parametrize("text", [None, "", "what", f"{os.getpid()}\n"], ids=["none", "empty", "odd", "other process"])
def test_run_dir_without_the_pid_of_a_server_has_no_orphan(tmp_path: Path, text: str | None) -> None:
    """A process that got the pid of an old server is left alone."""
    if text is not None:
        (tmp_path / "jvm.pid").write_text(text)
    assert end_orphan(tmp_path) is None


def test_tail_gives_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == []
    log.write_text("".join(f"line {number}\n" for number in range(50_000)))
    assert tail(log, 2) == ["line 49998", "line 49999"]
