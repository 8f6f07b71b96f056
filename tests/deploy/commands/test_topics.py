"""`headgate topics create`: what it warns of."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from connectors.kafka import admin
from connectors.kafka.admin import TopicReport
from deploy.commands.root import app


@pytest.mark.parametrize("single", [(), ("headgate.audit",)])
def test_topics_of_one_replica_on_three_brokers_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, single: tuple[str, ...]
) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text("kafka: {bootstrap_servers: 'k:1'}")
    monkeypatch.setattr(admin, "find_single_copies", lambda *_: single)
    monkeypatch.setattr(admin, "create_topics", lambda *_: TopicReport(("a",), (), (), (), None))
    result = CliRunner().invoke(app, ["topics", "create", "-s", str(file)])
    assert "created a\n1 topic in place, none differs\n" in result.stdout
    assert ("warning: 1 topic of one replica, such as headgate.audit" in result.stderr) is bool(single)
