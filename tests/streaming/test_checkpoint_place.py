"""Where a checkpoint is: always with its scheme, so that no cluster takes its own file system for it."""

from pathlib import Path

import pytest

from streaming.checkpoint_place import CheckpointPlace


@pytest.mark.parametrize(
    ("text", "uri", "folder"),
    [
        ("/srv/check point", "file:///srv/check%20point", Path("/srv/check point")),
        (Path("/srv/x"), "file:///srv/x", Path("/srv/x")),
        ("file:///srv/x", "file:///srv/x", Path("/srv/x")),
        ("file:/srv/x", "file:///srv/x", Path("/srv/x")),
        ("file://localhost/srv/x", "file:///srv/x", Path("/srv/x")),
        ("hdfs://n:8020/a/b/", "hdfs://n:8020/a/b", None),
        ("hdfs:///a/b", "hdfs:///a/b", None),
        ("s3a://bucket/a", "s3a://bucket/a", None),
    ],
)
def test_a_path_is_a_folder_and_a_uri_names_its_storage(text: str | Path, uri: str, folder: Path | None) -> None:
    place = CheckpointPlace.of(text)
    assert (place.uri, place.folder) == (uri, folder)


@pytest.mark.parametrize("text", ["hdfs:/a", "s3a://bucket", "s3a://bucket/", "file://elsewhere/a"])
def test_half_a_uri_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="URI"):
        CheckpointPlace.of(text)
