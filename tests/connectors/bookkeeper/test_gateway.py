"""The JVM of the BookKeeper client, as far as no JVM is needed: what it is started with, and what its end means."""

import io
import subprocess
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from connectors.bookkeeper import gateway
from connectors.bookkeeper.gateway import BookKeeperJvm, JavaError, JvmDiedError, LiveJvm, support_jars
from policies.units import UserError

JARS = tuple(Path(f"/jars/{name}1.jar") for name in ("bookkeeper-server-", "circe-checksum-"))


class Process:
    """A JVM's process that has ended with a code, or runs on."""

    pid = 42

    def __init__(self, code: int | None) -> None:
        self.code = code
        self.killed = False
        self.stdin, self.stdout = io.BytesIO(), io.BytesIO()

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        if self.code is None and not self.killed:
            assert timeout is not None
            raise subprocess.TimeoutExpired("java", timeout)
        return -9 if self.code is None else self.code

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def jvm(tmp_path: Path) -> BookKeeperJvm:
    return BookKeeperJvm(Path("/bin/java"), JARS, tmp_path, heap_mebibytes=64)


def started(jvm: BookKeeperJvm, process: Process, copier: Any = None) -> LiveJvm:
    """As if it had been started."""
    made: Any = process
    gateway: Any = Java()
    jvm._live = LiveJvm(made, gateway, copier)
    return jvm._live


def test_the_compiler_comes_from_pysparks_jars_and_py4j_from_its_own_package() -> None:
    names = [jar.name for jar in support_jars()]
    assert [name.partition("-")[0].rstrip("0123456789.jar") for name in names][1:] == ["commons", "janino"]
    assert names[0].startswith("py4j")
    assert all(jar.is_file() for jar in support_jars())


def test_without_the_compiler_the_requirements_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="install headgate's requirements again"):
        support_jars()


def test_the_command_bounds_the_memory_and_keeps_to_its_folder(jvm: BookKeeperJvm, tmp_path: Path) -> None:
    command = jvm._command()
    assert command[0] == "/bin/java"
    assert {"-Xmx64m", "-XX:MaxDirectMemorySize=64m", f"-Djava.io.tmpdir={tmp_path / 'tmp'}"} <= set(command)
    assert command[command.index("-cp") + 1] == ":".join(str(jar) for jar in (*JARS, *support_jars()))
    assert command[-4:] == ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]


@pytest.mark.parametrize(
    ("code", "console", "says"),
    [
        (3, b"one\n  java.lang.OutOfMemoryError\n  at x\n", "exit code 3; java.lang.OutOfMemoryError / at x"),
        (1, b"", "exit code 1; it said nothing"),
        (1, None, "exit code 1"),
        (-9, b"ignored", "it was killed by signal 9"),
        (None, b"ignored", "it hangs (no answer)"),
    ],
    ids=["its own doing", "in silence", "without a console", "killed", "hangs"],
)
def test_how_it_ended_is_told_in_one_line(
    jvm: BookKeeperJvm, tmp_path: Path, code: int | None, console: bytes | None, says: str
) -> None:
    if console is not None:
        (tmp_path / "console.log").write_bytes(console)
    process, made = Process(code), Py4JNetworkError("no\n answer")
    with pytest.raises(JvmDiedError, match="the JVM of the BookKeeper client is gone") as caught:
        jvm._call(started(jvm, process), Java(made).close)
    assert process.killed
    assert str(caught.value).removeprefix("the JVM of the BookKeeper client is gone: ") == says
    assert jvm.pid is None


def test_the_failure_of_an_earlier_jvm_does_not_end_the_next_one(jvm: BookKeeperJvm) -> None:
    earlier = started(jvm, Process(None))
    jvm.close()
    process = Process(None)
    started(jvm, process)
    with pytest.raises(JvmDiedError, match="it was closed"):
        jvm._call(earlier, Java(Py4JNetworkError("no answer")).close)
    assert not process.killed, "the one that runs now has done nothing"


def test_a_closed_jvm_is_ended(jvm: BookKeeperJvm) -> None:
    process = Process(None)
    started(jvm, process)
    jvm.close()
    assert process.killed
    assert jvm.pid is None
    jvm.limit(5)


class Java:
    """The object in the JVM: it notes what it was asked, or fails."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails
        self.asked: list[tuple[Any, ...]] = []

    def run(self, name: str, request: str, wait_ms: int) -> str | None:
        self._note("run", name, request, wait_ms)
        return "{}" if len(self.asked) == 3 else None

    def limit(self, bytes_per_second: int) -> None:
        self._note("limit", bytes_per_second)

    def close(self) -> None:
        self._note("close")

    def _note(self, *asked: Any) -> None:
        self.asked.append(asked)
        if self.fails is not None:
            raise self.fails


def test_a_request_is_asked_about_until_it_has_ended(jvm: BookKeeperJvm) -> None:
    java = Java()
    started(jvm, Process(None), java)
    assert jvm.run("[]") == "{}"
    assert len(set(java.asked)) == 1
    jvm.limit(5)
    assert java.asked[3:] == [("limit", 5)]
    started(jvm, Process(None), Java(Py4JNetworkError("it is gone")))
    jvm.limit(6)
    assert jvm.settings == {"bytes_per_second": 6}, "the next one starts with the limit"


def test_what_java_throws_does_not_end_the_jvm(jvm: BookKeeperJvm, monkeypatch: pytest.MonkeyPatch) -> None:
    class ThrownError(Exception):
        java_exception = "java.lang.IllegalStateException: closed"

    monkeypatch.setattr(gateway, "Py4JJavaError", ThrownError)
    process = Process(None)
    started(jvm, process, Java(ThrownError()))
    with pytest.raises(JavaError, match="IllegalStateException: closed"):
        jvm.run("{}")
    assert not process.killed
