"""A checkpoint of real Spark and all topics, as an earlier version left them: the query of this one goes on."""

import json
from pathlib import Path
from typing import Any

import pytest

from policies.registry import POLICIES
from tests.system.loop import Headgate, Topic, await_ready, make_topics, produce, write_settings
from tests.system.upgrade import PREFIX, say_all, settings, unpack
from tests.system.waiting import eventually

LEFT = sorted((Path(__file__).parents[1] / "data" / "upgrade").glob("*.tar.xz"))


@pytest.mark.parametrize("file", LEFT, ids=lambda file: file.name.partition(".")[0])
def test_a_query_goes_on_from_what_an_earlier_version_left(
    file: Path, tmp_path: Path, loop_kafka: str, free_port: int
) -> None:
    assert file.stat().st_size < 300_000
    written = write_settings(tmp_path / "headgate.yaml", **settings(loop_kafka, tmp_path / "data", free_port))
    (tmp_path / "data").mkdir()
    left = unpack(file, tmp_path / "data")
    make_topics(written)
    for topic, records in left.records.items():
        produce(loop_kafka, f"{PREFIX}.{topic}", *((r["key"], r["value"]) for r in records))
    taken = newest_commit(left.checkpoint)
    known = {subject_of(entry): entry["sequence"] for entry in map(decision, left.records["audit"])}
    known_policies = {policy for policy, *_ in known}
    assert known_policies == set(POLICIES)

    with (
        Headgate(["decide", "-s", str(written)], tmp_path / "decide.log") as query,
        Topic(loop_kafka, f"{PREFIX}.audit") as audit,
        Topic(loop_kafka, f"{PREFIX}.dead-letters") as dead,
    ):
        before = len(audit.entries())
        await_ready(query, free_port)
        say_all(loop_kafka)
        policies = {"throttle", "isolation", "sessions", "switching"}
        eventually(
            "each policy decides", lambda: policies <= {e.data["decision"]["policy"] for e in audit.entries()[before:]}
        )
        assert query.stop() == 0, query.output()
        said = [entry.data["decision"] for entry in audit.entries()[before:]]
        assert dead.entries() == []
    assert not [each for each in said if each.get("alert") == "policy-failed"]
    assert newest_commit(left.checkpoint) > taken, "the same run goes on"
    followed = [each for each in said if subject_of(each) in known]
    assert followed
    assert all(each["sequence"] > known[subject_of(each)] for each in followed)


def decision(record: dict[str, Any]) -> dict[str, Any]:
    """Of a record of the audit."""
    return dict(json.loads(record["value"])["data"]["decision"])


def subject_of(decided: dict[str, Any]) -> tuple[str, ...]:
    """What counts its sequences."""
    return tuple(str(decided.get(name)) for name in ("policy", "cluster", "subject", "alert"))


def newest_commit(checkpoint: Path) -> int:
    """The number of the last batch that is done."""
    return max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
