"""Archives of classes, made and taken by a real JVM; whatever is wrong with one, a start does without it."""

import os
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.java import class_archives
from deploy.java.class_archives import ClassArchive
from deploy.java.jvm import find_java

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


HALF, WHOLE = b"half", b"half and half"
SLOW_JAVA = f"""#!/bin/sh
for each; do case $each in -XX:SharedArchiveFile=*) file=${{each#*=}};; esac; done
printf '{HALF.decode()}' > "$file"
until [ -e "$0.go" ]; do sleep 0.01; done
printf '{WHOLE.decode()}' > "$file"
"""
"""It has written half of the archive until it is told to go on."""


def beside(archive: ClassArchive) -> ClassArchive:
    """Of another process, on the same folder."""
    return replace(archive, process="another")


def noting(archive: ClassArchive) -> bool:
    """Whether a start notes what it loads, for lack of an archive."""
    (flag,) = archive.flags()
    archive.noted.write_text("classes")
    return flag == f"-XX:DumpLoadedClassList={archive.noted}"


def test_of_two_that_start_at_once_one_makes_it_and_nobody_takes_half_of_one(
    archive: ClassArchive, tmp_path: Path
) -> None:
    java = tmp_path / "slow-java"
    java.write_text(SLOW_JAVA)
    java.chmod(0o700)
    first = replace(archive, java=java)
    second = beside(first)
    assert noting(first)
    assert noting(second)
    assert first.noted != second.noted
    with ThreadPoolExecutor() as threads:
        making = threads.submit(make, first)
        try:
            until(lambda: HALF in contents(first))
            assert not finished(second)
            threads.submit(make, second).result(30)
            assert contents(first) == [HALF], "the other's is left alone, and no second one is made"
            assert noting(beside(second)), "nor is half of one taken"
        finally:
            Path(f"{java}.go").touch()
        making.result()
    assert finished(second) == {first.file}
    assert contents(first) == [WHOLE]
    assert {*archive.folder.iterdir()} == {first.file, archive.folder / "program.lock"}


def test_two_real_ones_that_make_it_at_once_leave_one_that_both_take(archive: ClassArchive) -> None:
    both = (archive, beside(archive))
    with ThreadPoolExecutor() as threads:
        assert [each.returncode for each in threads.map(started, both)] == [0, 0]
        [*threads.map(make, both)]
    assert [*archive.folder.glob("program-*")] == [archive.file]
    for each in both:
        assert started(each, "-Xshare:on").returncode == 0, "on: else it does not start"


def test_what_a_process_noted_that_ended_before_goes_with_a_later_start(archive: ClassArchive) -> None:
    ended, recent = beside(archive), replace(archive, process="recent")
    for each in (ended, recent):
        assert noting(each)
    an_hour_ago = time.time() - 3601
    os.utime(ended.noted, (an_hour_ago, an_hour_ago))
    archive.flags()
    assert (ended.noted.exists(), recent.noted.exists()) == (False, True)


def finished(archive: ClassArchive) -> set[Path]:
    """What a start would take."""
    return {archive.file} if archive.file else set()


def contents(archive: ClassArchive) -> list[bytes]:
    """Of what is made there."""
    return [each.read_bytes() for each in archive.folder.iterdir() if each.suffix not in (".classes", ".lock")]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)
