"""The way back from a damaged checkpoint: said before it is done, and done only where no decision changes by it."""

import json
import os
import re
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.commands.root import app
from deploy.query.checkpoint import (
    Checkpoint,
    remedy_for,
    repair,
    repair_plan,
    require_fitting,
    require_same_kafka,
    reset,
    reset_plan,
)
from deploy.query.sole_use import sole_query
from deploy.settings.file import load_settings
from policies.errors import UserError
from tests.cases import case

# As Spark 4.2 wrote it for the first version of this query, shortened.
PLAN = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795313202639,"conf":{"spark.sql.streaming.stateStore.encodingFormat":'
    '"avro","spark.sql.shuffle.partitions":"1","spark.sql.streaming.stateStore.compression.codec":"lz4"}}\n'
    '{"headgate.commands":{"0":0},"headgate.observed.log-dirs":{"0":128}}'
)
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of three batches, the last of them not committed."""
    folder = tmp_path / "checkpoint"
    for log, content, batches in (("offsets", PLAN, range(3)), ("commits", COMMIT, range(2))):
        (folder / log).mkdir(parents=True)
        for batch in batches:
            (folder / log / str(batch)).write_text(content)
            (folder / log / f".{batch}.crc").write_bytes(b"crc")
    (folder / "state/0/0").mkdir(parents=True)
    for version in (1, 2):
        (folder / f"state/0/0/{version}.changelog").write_bytes(b"state")
    (folder / "metadata").write_text('{"id":"2f87a521-3a9d-4788-8033-938a03e564ca"}')
    rest(folder)
    return folder


def rest(folder: Path) -> None:
    """As if nothing had been written for a while."""
    before = time.time() - 3600
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (before, before))


def damage(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    rest(path.parent.parent)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_whole_one_has_nothing_to_repair(folder: Path) -> None:
    before = contents(folder)
    assert repair_plan(Checkpoint(folder)) == []
    assert remedy_for(Checkpoint(folder)) is None
    assert contents(folder) == before


@pytest.mark.parametrize("content", [b"", b"v1\n", b'v1\n{"next', b"\x00" * 40], ids=["empty", "cut", "half", "zeros"])
def test_a_lost_commit_is_removed_and_its_batch_repeated(folder: Path, content: bytes) -> None:
    damage(folder / "commits/1", content)
    found = Checkpoint(folder)
    assert remedy_for(found) is not None
    (line,) = repair_plan(found)
    assert "batch 1 is repeated with the same result" in line
    repair(found)
    assert sorted(contents(folder)) == sorted(set(contents(folder)) - {"commits/1", "commits/.1.crc"})
    assert not (folder / "commits/1").exists()
    assert repair_plan(Checkpoint(folder)) == []


def test_a_lost_commit_before_the_last_is_written_anew(folder: Path) -> None:
    damage(folder / "commits/0", b"")
    repair(Checkpoint(folder))
    assert (folder / "commits/0").read_text() == COMMIT
    assert not (folder / "commits/.0.crc").exists(), "it is the sum of what was there before"


def test_a_lost_name_is_given_anew(folder: Path) -> None:
    (folder / "metadata").write_text("")
    rest(folder)
    repair(Checkpoint(folder))
    assert set(json.loads((folder / "metadata").read_text())) == {"id"}


@pytest.mark.parametrize("lost", ["offsets/2", "offsets/1", "state/0/0/2.changelog"])
def test_a_lost_plan_or_state_is_not_repaired_but_begun_anew(folder: Path, lost: str) -> None:
    (folder / lost).write_bytes(b"")
    rest(folder)
    before = contents(folder)
    with pytest.raises(UserError, match="This cannot be repaired: start again with `headgate checkpoint reset`"):
        repair_plan(Checkpoint(folder))
    assert "`headgate checkpoint reset` lists the changes" in (remedy_for(Checkpoint(folder)) or "")
    aside = reset(Checkpoint(folder))
    assert not folder.exists()
    assert contents(aside) == before, "nothing is deleted"


def test_a_reset_says_what_it_costs_and_never_overwrites_an_earlier_one(folder: Path) -> None:
    assert "oldest records" in reset_plan(Checkpoint(folder))[1]
    before = folder.stat().st_mtime
    first = reset(Checkpoint(folder))
    (folder / "offsets").mkdir(parents=True)
    for path in (folder, folder / "offsets"):
        os.utime(path, (before, before))
    second = reset(Checkpoint(folder))
    assert first != second
    assert first.exists()


@pytest.mark.parametrize("command", ["repair", "reset"])
def test_the_command_only_says_it_until_it_is_told_yes(folder: Path, command: str, tmp_path: Path) -> None:
    damage(folder / "commits/1", b"")
    settings = tmp_path / "headgate.yaml"
    settings.write_text(f"data_dir: {tmp_path}\n")
    before = contents(folder)
    said = CliRunner().invoke(app, ["checkpoint", command, "-s", str(settings)])
    assert said.exit_code == 0
    assert said.output.startswith("Nothing is changed now. With --yes, while no query runs:")
    assert contents(folder) == before
    done = CliRunner().invoke(app, ["checkpoint", command, "-s", str(settings), "--yes"])
    assert done.exit_code == 0
    assert ("repaired" in done.output) is (command == "repair")
    assert folder.exists() is (command == "repair")


@pytest.mark.parametrize("command", ["repair", "reset"])
def test_a_query_that_is_idle_is_running_all_the_same(folder: Path, command: str, tmp_path: Path) -> None:
    damage(folder / "commits/1", b"")
    settings = tmp_path / "headgate.yaml"
    settings.write_text(f"data_dir: {tmp_path}\n")
    before = contents(folder)
    with sole_query(load_settings(settings)):  # as the query holds it, which writes nothing while nothing comes
        refused = CliRunner().invoke(app, ["checkpoint", command, "-s", str(settings), "--yes"])
    assert isinstance(refused.exception, UserError)
    assert "is in use by another query" in str(refused.exception)
    assert contents(folder) == before


def test_without_a_checkpoint_there_is_nothing_to_mend(tmp_path: Path) -> None:
    for plan in (repair_plan, reset_plan):
        with pytest.raises(UserError, match="there is no checkpoint"):
            plan(Checkpoint(tmp_path / "checkpoint"))
    assert remedy_for(Checkpoint(tmp_path / "checkpoint")) is None


# Settings that do not fit


def test_settings_it_was_made_with_fit(folder: Path) -> None:
    require_fitting(Checkpoint(folder).plan, 1, "headgate")
    require_fitting(Checkpoint(folder.with_name("none")).plan, 7, "other")


def test_another_number_of_state_partitions_is_refused_with_the_remedy(folder: Path) -> None:
    with pytest.raises(UserError, match=r"shuffle_partitions is 2, .*made with 1: set it back, .*checkpoint reset`"):
        require_fitting(Checkpoint(folder).plan, 2, "headgate")


def test_another_prefix_is_refused_with_the_remedy(folder: Path) -> None:
    with pytest.raises(UserError, match=r"topics.prefix is prod, .* is at headgate\.commands: set it back"):
        require_fitting(Checkpoint(folder).plan, 1, "prod")


@pytest.mark.parametrize("plan", ["", "v1", "v1\n{}\n{}", "v1\n[]\n[]", 'v1\n{"conf":1}\n{}'])
def test_a_plan_that_cannot_be_read_refuses_nothing(folder: Path, plan: str) -> None:
    (folder / "offsets/2").write_text(plan)
    require_fitting(Checkpoint(folder).plan, 2, "prod")


def test_the_offsets_of_another_kafka_are_refused_with_the_remedy(folder: Path) -> None:
    require_same_kafka(Checkpoint(folder), "first")
    require_same_kafka(Checkpoint(folder), "first")
    with pytest.raises(UserError, match=r"leads to the Kafka second, .* offsets of first: set it back, .*reset`"):
        require_same_kafka(Checkpoint(folder), "second")


def test_a_checkpoint_that_is_to_be_made_may_be_on_any_kafka(folder: Path) -> None:
    new = Checkpoint(folder.with_name("new"))
    require_same_kafka(new, "first")
    assert not new.exists
    require_same_kafka(new, "second")
    require_same_kafka(new, None)
    assert (new.folder / "kafka").stat().st_mode & 0o077 == 0


# State that is gone


def test_a_change_that_is_gone_cannot_be_repaired(folder: Path) -> None:
    (folder / "state/0/0/2.changelog").unlink()
    with pytest.raises(UserError, match=r"(?s)2\.changelog: it is missing, .* cannot be repaired: .*reset`"):
        repair_plan(Checkpoint(folder))
    assert "checkpoint reset" in (remedy_for(Checkpoint(folder)) or "")


def test_changes_before_a_snapshot_are_not_needed(folder: Path) -> None:
    (folder / "state/0/0/2.zip").write_bytes(b"snapshot")
    for version in (1, 2):
        (folder / f"state/0/0/{version}.changelog").unlink()
    assert Checkpoint(folder).damages == ()


@pytest.mark.parametrize("content", [b"", b"v2", b"v2\n{"])
def test_how_the_state_is_kept_cannot_be_repaired(folder: Path, content: bytes) -> None:
    (folder / "state/0/_metadata/v2").mkdir(parents=True)
    (folder / "state/0/_metadata/v2/0").write_bytes(content)
    with pytest.raises(UserError, match="the format of the state is lost"):
        repair_plan(Checkpoint(folder))


# The files of a real one


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """The checkpoint of an earlier version: nine batches, a snapshot after the first."""
    return unpack("third", tmp_path)


def unpack(name: str, folder: Path) -> Path:
    with tarfile.open(Path(__file__).parents[2] / f"data/upgrade/{name}.tar.xz") as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # absent, and not asked for, before 3.11.4
        packed.extractall(folder)
    return folder / "checkpoint"


def needed(folder: Path) -> list[Path]:
    """The files that the next start reads, without their checksums."""
    logs = [folder / "metadata", *(folder / log / str(batch) for log in ("offsets", "commits") for batch in (7, 8))]
    state = [path for path in (folder / "state").rglob("*") if path.is_file() and not path.name.startswith(".")]
    return [*logs, folder / "sources/0/0", *(path for path in state if path.name != "1.changelog")]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def test_a_whole_real_one_agrees_with_its_checksums(real: Path) -> None:
    assert Checkpoint(real).damages == ()


@pytest.mark.parametrize("damages", [flip_a_bit, empty], ids=["a bit", "emptied"])
def test_every_damage_of_a_file_that_is_needed_has_a_named_remedy(real: Path, damages: Callable[[Path], None]) -> None:
    for path in needed(real):
        before = path.read_bytes()
        damages(path)
        with case(str(path.relative_to(real))):
            assert re.search(r"`headgate checkpoint (repair|reset)` lists", remedy_for(Checkpoint(real)) or "")
        path.write_bytes(before)
    assert Checkpoint(real).damages == ()


@pytest.mark.parametrize(
    "gone", ["offsets/7", "offsets/8", "state/0/_metadata", "state/0/_stateSchema", "state/0/0/9.changelog"]
)
def test_so_has_one_that_is_gone(real: Path, gone: str) -> None:
    path = real / gone
    for each in [path.with_name(f".{path.name}.crc"), path]:
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)
    assert "`headgate checkpoint reset` lists" in (remedy_for(Checkpoint(real)) or "")


@pytest.mark.parametrize("damages", [flip_a_bit, empty, Path.unlink], ids=["a bit", "emptied", "gone"])
def test_so_has_a_table_that_the_newest_snapshot_needs(tmp_path: Path, damages: Callable[[Path], None]) -> None:
    folder = unpack("second", tmp_path)
    assert Checkpoint(folder).damages == ()
    (table,) = folder.glob("state/0/0/SSTs/*.sst")
    damages(table)
    assert "`headgate checkpoint reset` lists" in (remedy_for(Checkpoint(folder)) or "")
