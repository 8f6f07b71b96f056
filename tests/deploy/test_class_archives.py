"""Archives of classes, made and taken by a real JVM; whatever is wrong with one, a start does without it."""

import subprocess
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import class_archives
from deploy.class_archives import ClassArchive
from deploy.jvm import find_java

NEVER = threading.Event()


@pytest.fixture(autouse=True)
def _nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(class_archives, "memory_room_bytes", lambda: 3 * 2**29)


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    jar = tmp_path / "program.jar"
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    return ClassArchive("program", tmp_path / "archives", find_java(), (jar,))


def started(archive: ClassArchive, *more: str) -> subprocess.CompletedProcess[str]:
    """A start of the program, which here only says its version."""
    flags = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archive.flags(), *more)
    command = [str(archive.java), *flags, "-cp", str(archive.jars[0]), "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def make(archive: ClassArchive, stop: threading.Event = NEVER) -> None:
    archive.make(str(archive.jars[0]), stop)


def test_the_first_start_notes_what_it_loads_and_later_ones_take_the_archive(archive: ClassArchive) -> None:
    assert started(archive).returncode == 0
    make(archive)
    assert [*archive.folder.glob("program-*")] == [archive.file]
    taken = started(archive, "-Xshare:on", "-Xlog:cds=info")  # on: else it does not start
    assert (taken.returncode, archive.noted.exists()) == (0, False)
    assert str(archive.file) in taken.stdout


def _damaged(file: Path) -> None:
    size = file.stat().st_size
    file.write_bytes(b"no archive".ljust(size))


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100_000])


@pytest.mark.parametrize("spoil", [_damaged, _cut, Path.touch])
def test_one_that_does_not_fit_is_left_aside_without_a_word(
    archive: ClassArchive, spoil: Callable[[Path], None]
) -> None:
    started(archive)
    make(archive)
    if spoil is Path.touch:
        archive.jars[0].touch()  # of the same size, but another time: the JVM compares that, too
    else:
        assert archive.file is not None
        archive.file.chmod(0o600)
        spoil(archive.file)
    expected = subprocess.run([archive.java, "-version"], capture_output=True, text=True, check=True)
    left = started(archive)
    assert (left.returncode, left.stdout, left.stderr.splitlines()[0]) == (0, "", expected.stderr.splitlines()[0])


def test_other_jars_have_another_archive_which_takes_its_place(archive: ClassArchive) -> None:
    started(archive)
    make(archive)
    before = archive.file
    with zipfile.ZipFile(archive.jars[0], "a") as file:
        file.writestr("more", "more")
    started(archive)
    make(archive)
    assert archive.file != before
    assert [*archive.folder.glob("program-*")] == [archive.file]


def test_one_that_is_given_up_leaves_nothing(archive: ClassArchive) -> None:
    started(archive)
    stop = threading.Event()
    stop.set()
    make(archive, stop)
    assert [*archive.folder.glob("program-*")] == []


def test_where_memory_is_short_none_is_made(archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    started(archive)
    monkeypatch.setattr(class_archives, "memory_room_bytes", lambda: 3 * 2**29 - 1)
    make(archive)
    assert [*archive.folder.glob("program-*")] == []


def test_where_nothing_was_noted_nothing_is_made(archive: ClassArchive) -> None:
    make(archive)
    assert not archive.folder.exists()


def test_who_names_an_archive_keeps_it(archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/own.jsa")
    assert archive.flags() == ()


def test_a_folder_that_cannot_be_written_is_no_reason_not_to_start(archive: ClassArchive) -> None:
    archive.folder.write_text("in its place")
    assert archive.flags() == ()
    make(archive)
