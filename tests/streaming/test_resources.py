"""Limits with which no query can start are told in one sentence before one is started."""

import ast
import resource
from pathlib import Path

import pytest

from policies.units import UserError, without_settings
from streaming import session
from streaming.session import require_resources

UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[int, tuple[int, int]]:
    """The process's limits, as the test sets them; its control group is `tmp_path`."""
    given = {resource.RLIMIT_NOFILE: UNLIMITED, resource.RLIMIT_AS: UNLIMITED}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: given[kind])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: given.update({kind: pair}))
    monkeypatch.setattr(session, "_CGROUP", tmp_path)
    return given


@pytest.mark.parametrize("count", [64, 256, 1023])
def test_too_few_open_files_are_refused(limits: dict[int, tuple[int, int]], count: int) -> None:
    limits[resource.RLIMIT_NOFILE] = (count, count)
    with pytest.raises(UserError, match=rf"^this process may open {count} files, and the query needs 1024: raise"):
        require_resources()


def test_the_limit_of_open_files_is_raised_as_far_as_the_process_may(limits: dict[int, tuple[int, int]]) -> None:
    limits[resource.RLIMIT_NOFILE] = (256, 8192)
    require_resources()
    assert limits[resource.RLIMIT_NOFILE] == (8192, 8192)


def test_too_little_memory_is_refused(limits: dict[int, tuple[int, int]], tmp_path: Path) -> None:
    limits[resource.RLIMIT_AS] = (300_000_000, 300_000_000)
    with pytest.raises(UserError, match=r"may use 300 MB of memory, and the query needs 600 MB to start.*`ulimit -v`"):
        require_resources()
    limits[resource.RLIMIT_AS] = UNLIMITED
    require_resources()
    (tmp_path / "memory.max").write_text("314572800\n")
    with pytest.raises(UserError, match="may use 315 MB of memory"):
        require_resources()
    (tmp_path / "memory.max").write_text("max\n")
    require_resources()


def test_a_user_without_a_name_is_refused(limits: dict[int, tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_123)
    with pytest.raises(UserError, match=r"^user 4000000123 has no name on this machine, and Spark needs one: add"):
        require_resources()


def test_a_child_inherits_no_settings() -> None:
    given = {"HEADGATE_KAFKA__SASL__PASSWORD": "secret", "headgate_http__port": "1", "PATH": "/bin", "JAVA_HOME": "/j"}
    assert without_settings(given) == {"PATH": "/bin", "JAVA_HOME": "/j"}


def test_every_child_is_started_without_settings() -> None:
    """Each call that starts a process passes it an environment; Spark's JVM gets this process's, for that moment."""
    root = Path(__file__).parents[2]
    calls = [
        (file.name, node)
        for folder in ("connectors", "deploy", "streaming")
        for file in (root / folder).rglob("*.py")
        if "subprocess." in (text := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("subprocess.run", "subprocess.Popen")
    ]
    assert len(calls) >= 5
    assert [f"{name}:{node.lineno}" for name, node in calls if all(each.arg != "env" for each in node.keywords)] == []
