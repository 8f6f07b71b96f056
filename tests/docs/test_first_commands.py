"""The first commands of pages that need no server, as they stand."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from deploy import cli
from tests.docs.blocks import ROOT, Block, blocks

PROPERTIES = """\
node.id=1
client.quota.callback.class=io.strimzi.kafka.quotas.StaticQuotaCallback
client.quota.callback.static.produce=1000000
client.quota.callback.static.storage.per.volume.limit.min.available.bytes=5000000000
client.quota.callback.static.storage.check-interval=10
"""


def first_of(page: str) -> Block:
    return next(block for block in blocks() if block.page == page and block.is_shell)


class Reader:
    """Somebody in a folder whose shell knows one program and `>`; starting it anew each time would take a second."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        monkeypatch.chdir(folder)

    def does(self, block: Block) -> None:
        """Run the commands, one after the other."""
        for command in block.commands():
            words, _, file = command.partition(" > ")
            self._monkeypatch.setattr(sys, "argv", shlex.split(words))
            assert sys.argv[0] == "headgate"
            with pytest.raises(SystemExit) as ended:
                cli.main()
            said = self._capsys.readouterr()
            assert ended.value.code == 0, f"{command}\n{said.out}{said.err}"
            if file:
                (self.folder / file).write_text(said.out)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reader:
    return Reader(tmp_path, monkeypatch, capsys)


def test_who_comes_from_strimzis_plugin_gets_settings_that_are_good(reader: Reader) -> None:
    (reader.folder / "server.properties").write_text(PROPERTIES)
    reader.does(first_of("docs/strimzi.md"))
    assert "preset: strimzi" in (reader.folder / "headgate.yaml").read_text()


def test_recorded_events_are_replayed(reader: Reader) -> None:
    shutil.copy(ROOT / "tests" / "data" / "replay" / "throttle.events.jsonl", reader.folder / "EVENTS.jsonl")
    (reader.folder / "headgate.yaml").write_text("policies: {throttle: {hard: {available_bytes_below: 1GB}}}\n")
    reader.does(first_of("docs/replay.md"))


def test_the_rights_of_a_part_are_told_without_a_broker(reader: Reader) -> None:
    rights = next(block for block in blocks() if "headgate topics acls" in block.text)
    reader.does(rights)
