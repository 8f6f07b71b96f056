"""The precheck of a switch between two real BookKeeper clusters, with ledgers that the real client made."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kazoo.security import make_digest_acl
from typer.testing import CliRunner

from deploy.commands.root import app
from deploy.settings.file import load_settings
from deploy.switch.precheck import check
from policies.switching.ledgers import FindingReason, HitClass, hob_name
from policies.switching.precheck import PrecheckSnapshot
from policies.switching.readings import SwitchPrecheck
from tests.connectors.pulsar.znodes import cursor_info, schema_locator
from tests.system.switching import NEW, OLD, Clusters

TOPICS = "/managed-ledgers/t/n/persistent"


@pytest.fixture(scope="module")
def running(bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with Clusters(tmp_path_factory.mktemp("clusters"), bookkeeper_jars) as clusters:
        yield clusters


@pytest.fixture
def clusters(running: Clusters) -> Clusters:
    """Both as on their first day: no ledger was ever made in them, and no broker knows of them."""
    for name in (OLD, NEW):
        with running.zookeeper.client(chroot=f"/{name}") as client:
            for each in ("00", "000", "idgen", "idgen-long"):
                client.delete(f"/ledgers/{each}", recursive=True)
            for each in ("schemas", "managed-ledgers"):
                client.delete(f"/{each}", recursive=True)
        running.ledgers.renew(running.servers(name))
    return running


@dataclass
class Fleet:
    """A broker cluster whose metadata lies beside the old BookKeeper cluster's."""

    clusters: Clusters
    folder: Path

    def settings(self, *, clusters: Any = None, **rules: Any) -> Path:
        """A settings file; `rules` are the policy's, for this cluster only."""
        two = {OLD: {}, NEW: {"zookeeper": {"servers": self.clusters.servers(NEW)}}}
        watched = {
            "zookeeper": {"servers": self.clusters.servers(OLD)},
            "bookkeeper": {"bootstrap": OLD, "clusters": clusters or two},
        }
        file = self.folder / "headgate.yaml"
        file.write_text(
            yaml.safe_dump({"clusters": {"c1": watched}, "policies": {"switching": {"clusters": {"c1": rules}}}})
        )
        return file

    def check(self, target: str = NEW, **more: Any) -> tuple[SwitchPrecheck, PrecheckSnapshot]:
        return check(load_settings(self.settings(**more)), "c1", target)

    def make(self, name: str) -> int:
        """Make a ledger under a cluster's next id, and return the id."""
        return self.clusters.ledgers.make(self.clusters.servers(name), [b"entry 0"])

    def occupy(self, ledger_id: int) -> None:
        """Make a ledger in the new cluster."""
        self.clusters.ledgers.write(self.clusters.servers(NEW), ledger_id, [b"entry 0"])

    def cursor(self, ledger_id: int) -> None:
        self.put(f"{TOPICS}/topic-{ledger_id}/s1", cursor_info(ledger_id))

    def schema(self, *ledger_ids: int) -> None:
        self.put(f"/schemas/t/n/topic-{ledger_ids[-1]}", schema_locator(*ledger_ids))

    def put(self, path: str, data: bytes) -> None:
        """Write a znode of the brokers."""
        with self.clusters.zookeeper.client(chroot=f"/{OLD}") as client:
            client.ensure_path(path)
            client.set(path, data)


@pytest.fixture
def fleet(clusters: Clusters, tmp_path: Path) -> Fleet:
    """Three ledgers of the old cluster are referred to; the new one is empty, and its ids begin beyond."""
    fleet = Fleet(clusters, tmp_path)
    first, second, third = (fleet.make(OLD) for _ in range(3))
    fleet.cursor(first)
    fleet.schema(second, third)
    fleet.cursor(-1)
    clusters.advance_new(1)
    return fleet


def reasons(report: SwitchPrecheck) -> tuple[FindingReason, ...]:
    assert report.ready is not bool(report.findings)
    return report.reasons


def test_a_prepared_target_is_ready(fleet: Fleet) -> None:
    report, seen = fleet.check()
    assert (report.ready, report.findings, seen.problems) == (True, (), ())
    assert (report.to_import, report.target_next_id) == (3, 1 << 32)


def test_the_next_id_is_the_one_that_the_server_then_gives(fleet: Fleet) -> None:
    for _ in range(3):
        report, _ = fleet.check()
        assert report.source_next_id == fleet.make(OLD)
        assert report.target_next_id == fleet.make(NEW)
    fleet.clusters.create_hob(OLD, hob_name(7))
    assert fleet.check()[0].source_next_id == 7 << 32


def test_a_foreign_ledger_at_an_id_to_import_is_found(fleet: Fleet) -> None:
    fleet.occupy(2)
    for policy in ("shared", "dedicated"):
        report, _ = fleet.check(target_policy=policy)
        (finding,) = report.findings
        assert (finding.reason, finding.samples) == (FindingReason.FOREIGN_ID, (2,))
        assert report.hits[HitClass.FOREIGN].samples == (2,)


@pytest.mark.parametrize("spelling", ["by another host name", "as a root below no chroot"])
def test_one_cluster_under_two_names_is_refused(fleet: Fleet, spelling: str) -> None:
    servers = fleet.clusters.servers(OLD)
    server, _, chroot = servers.partition("/")
    alias = {
        "by another host name": {"zookeeper": {"servers": servers.replace("127.0.0.1", "localhost")}},
        "as a root below no chroot": {"zookeeper": {"servers": server}, "ledgers_root": f"/{chroot}/ledgers"},
    }[spelling]
    report, _ = fleet.check("other", clusters={"old": {}, "other": alias}, target_policy="shared")
    assert FindingReason.ALIAS in reasons(report)


def test_a_znode_that_its_acl_hides_makes_the_list_incomplete(fleet: Fleet) -> None:
    hidden = f"{TOPICS}/topic-0/hidden"
    with fleet.clusters.zookeeper.client(chroot=f"/{OLD}") as client:
        client.create(hidden, cursor_info(9), acl=[make_digest_acl("broker", "secret", all=True)])
        report, seen = fleet.check()
        client.delete(hidden)  # its parent's ACL counts
    assert FindingReason.SNAPSHOT_INCOMPLETE in reasons(report)
    assert seen.problems == (f"c1: /{OLD}{hidden}: its ACL does not let us read it",)


# --- the command


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["switch", "precheck", "--cluster", "c1", *arguments])
    return result.exit_code, result.output


def test_the_command_shows_and_prints_what_was_found(fleet: Fleet, free_port: int) -> None:
    file = str(fleet.settings())
    status, text = run("--target", "new", "-s", file)
    assert (status, "READY: old to new" in text) == (0, True), text
    fleet.occupy(2)
    status, text = run("--target", "new", "-s", file, "--explain")
    assert (status, "NOT READY: old to new: foreign_id" in text) == (1, True), text
    assert "Or take another target." in " ".join(text.split())
    status, text = run("--target", "new", "-s", file, "--json")
    report = json.loads(text)
    assert (status, report["ready"], report["references"]) == (1, False, 5)
    assert report["ids_to_import"] == [0, 1, 2]
    assert report["hits"]["foreign"] == {"count": 1, "samples": [2]}
    away = {"zookeeper": {"servers": f"127.0.0.1:{free_port}", "timeout": "1s"}}
    status, text = run("--target", "new", "-s", str(fleet.settings(clusters={"old": {}, "new": away})))
    assert (status, "what exists in new is unknown" in text) == (1, True), text


def test_the_plan_says_what_would_move_and_writes_nothing(fleet: Fleet) -> None:
    given = ["--cluster", "c1", "--target", "new", "-s", str(fleet.settings())]
    result = CliRunner().invoke(app, ["switch", "plan", *given, "--json"])
    plan = json.loads(result.output)
    assert (result.exit_code, plan["ready"], plan["ledgers"]) == (0, True, {"cursor": 1, "schema": 2})
    assert (plan["count"], plan["unread"]) == (3, 0)
    assert (plan["build_seconds"], plan["promote_seconds"]) == (0.02, 0.02)
    text = CliRunner().invoke(app, ["switch", "plan", *given]).output
    assert ("READY: old to new" in text, "3 (1 cursor, 2 schema)" in text) == (True, True)
    fleet.occupy(2)
    assert CliRunner().invoke(app, ["switch", "plan", *given]).exit_code == 1
