"""Files that Spark's JVM makes on this machine: with the permissions that were asked for, and by itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import py4j.java_gateway
import py4j.protocol
import pytest
from pyspark.java_gateway import launch_gateway

from streaming.local_files import make_files_without_processes

pytestmark = pytest.mark.streaming

ROOT = "file:///"


@pytest.fixture(scope="module")
def jvm(java: None) -> Iterator[Any]:
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    conf = gateway.jvm.org.apache.spark.SparkConf()
    conf.set("spark.hadoop.fs.permissions.umask-mode", "027")
    make_files_without_processes(gateway.jvm, conf)
    yield gateway.jvm
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


def files_for_whoever_asks(jvm: Any) -> Any:
    others = jvm.org.apache.hadoop.conf.Configuration()
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(ROOT), others)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_all_in_the_jvm_make_files_without_a_process_and_as_our_settings_have_it(jvm: Any, tmp_path: Path) -> None:
    files = files_for_whoever_asks(jvm)
    assert files.getClass().getName() == "headgate.LocalFiles"
    made = tmp_path / "folder" / "file"
    files.create(jvm.org.apache.hadoop.fs.Path(str(made))).close()
    assert (mode(made), mode(made.parent)) == (0o640, 0o750)


@pytest.mark.parametrize("wanted", [0o600, 0o754, 0o1777])
def test_a_file_gets_the_permissions_that_are_asked_for(jvm: Any, tmp_path: Path, wanted: int) -> None:
    (made := tmp_path / "file").touch()
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission(f"{wanted:o}")
    files_for_whoever_asks(jvm).setPermission(jvm.org.apache.hadoop.fs.Path(str(made)), permission)
    assert mode(made) == wanted


def test_what_is_not_there_is_said(jvm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Who had a session in this process has Spark's own errors, for which there must be one.
    monkeypatch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission("600")
    with pytest.raises(Exception, match="NoSuchFileException"):
        files_for_whoever_asks(jvm).setPermission(jvm.org.apache.hadoop.fs.Path(str(tmp_path / "none")), permission)
