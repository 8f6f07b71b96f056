"""A checkpoint goes on in whatever folder it lies: what Spark noted by absolute path follows it."""

import json
from pathlib import Path

import pytest

from deploy.query.checkpoint_move import follow_move

SCHEMA = "0/_stateSchema/default/0_4d6055e8-0b7b-42dd-910a-3a293331f870"


def noted(folder: Path) -> list[str]:
    _, _, text = (folder / "state/0/_metadata/v2/0").read_text().partition("\n")
    return [path for store in json.loads(text)["stateStoreInfo"] for path in store["stateSchemaFilePaths"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint as Spark made it, in a folder whose name is trying."""
    folder = tmp_path / "state" / "a b" / "checkpoint"
    schema = folder / "state" / SCHEMA
    schema.parent.mkdir(parents=True)
    schema.write_bytes(b"schema")
    (folder / "state/0/_metadata/v2").mkdir(parents=True)
    store = {"storeName": "default", "numPartitions": 1, "stateSchemaFilePaths": [f"file:{schema}"]}
    note = {"operatorInfo": {"operatorId": 0}, "stateStoreInfo": [store], "operatorPropertiesJson": "{}"}
    (folder / "state/0/_metadata/v2/0").write_text(f"v2\n{json.dumps(note)}")
    (folder / "state/0/_metadata/v2/.0.crc").write_bytes(b"crc")
    return folder


def test_a_checkpoint_that_was_moved_names_its_new_place(folder: Path, tmp_path: Path) -> None:
    moved = folder.rename(tmp_path / "elsewhere")
    assert follow_move(moved)
    assert noted(moved) == [f"file:{moved}/state/{SCHEMA}"]
    assert not (moved / "state/0/_metadata/v2/.0.crc").exists(), "it was the sum of the old one"
    assert (moved / "state/0/_metadata/v2/0").read_text().startswith("v2\n")
    assert not follow_move(moved), "once"


def test_one_that_was_not_moved_stays_as_it_is(folder: Path) -> None:
    before = (folder / "state/0/_metadata/v2/0").read_bytes()
    assert not follow_move(folder)
    assert (folder / "state/0/_metadata/v2/0").read_bytes() == before
    assert (folder / "state/0/_metadata/v2/.0.crc").exists()


@pytest.mark.parametrize("content", ["", "v2", "v2\n{", 'v2\n{"stateStoreInfo":[{}]}', "v2\n[]"])
def test_what_is_damaged_is_left_for_the_repair(folder: Path, content: str) -> None:
    (folder / "state/0/_metadata/v2/0").write_text(content)
    assert not follow_move(folder)


def test_a_file_that_is_nowhere_is_not_made_up(folder: Path, tmp_path: Path) -> None:
    (folder / "state" / SCHEMA).unlink()
    assert not follow_move(folder.rename(tmp_path / "elsewhere"))


def test_without_a_checkpoint_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert not follow_move(tmp_path / "none")
