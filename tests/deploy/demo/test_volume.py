"""The demo's volume: a disk that nobody else sees and that outlives nobody, or a folder whose files are counted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.demo.volume import DemoVolume, small_volume

MEBIBYTE = 1024 * 1024

IN_PRIVATE = """
import sys
from pathlib import Path
from deploy.demo.volume import enter_private_mounts, small_volume
if not enter_private_mounts():
    sys.exit(77)
folder = Path(sys.argv[1])
with small_volume(folder, 4 * 1024 * 1024, mounts=True) as volume:
    assert volume.is_disk
    free = volume.free_bytes()
    assert 0 < free <= volume.total_bytes
    (folder / "file").write_bytes(bytes(1024 * 1024))
    assert free - volume.free_bytes() >= 1024 * 1024
    try:
        (folder / "large").write_bytes(bytes(8 * 1024 * 1024))
    except OSError as error:
        print(error.strerror, flush=True)
    sys.stdin.read()
assert not (folder / "file").exists(), "it is unmounted"
"""


def test_a_disk_of_its_own_has_its_size_is_seen_by_nobody_else_and_ends_with_its_process(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    with subprocess.Popen(
        [sys.executable, "-c", IN_PRIVATE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said and process.wait() == 77:
            pytest.skip("this system allows no mounts of our own")
        assert said == "No space left on device\n"
        assert list(folder.iterdir()) == [], "the mount is not ours"
        assert str(folder) not in Path("/proc/self/mounts").read_text()
        process.kill()
    assert list(folder.iterdir()) == []


def test_a_disk_is_unmounted_at_the_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_PRIVATE, str(tmp_path / "disk")]
    ended = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    if ended.returncode == 77:
        pytest.skip("this system allows no mounts of our own")
    assert ended.returncode == 0, ended.stderr


def test_a_folder_is_as_full_as_its_files_are(tmp_path: Path) -> None:
    with small_volume(tmp_path / "folder", MEBIBYTE, mounts=False) as volume:
        assert (volume.is_disk, volume.free_bytes()) == (False, MEBIBYTE)
        (volume.folder / "deeper").mkdir()
        (volume.folder / "deeper" / "file").write_bytes(os.urandom(MEBIBYTE // 4))
        assert volume.free_bytes() == MEBIBYTE - MEBIBYTE // 4
        (volume.folder / "large").write_bytes(os.urandom(MEBIBYTE))
        assert volume.free_bytes() == 0


def test_of_a_sparse_file_only_what_is_written_counts(tmp_path: Path) -> None:
    with (tmp_path / "index").open("wb") as index:
        index.truncate(64 * MEBIBYTE)
    assert DemoVolume(tmp_path, MEBIBYTE, is_disk=False).free_bytes() > 0
