"""What the commands read and print of clusters and prechecks; what was read counts only where it is registered."""

import json
import subprocess
import sys
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from connectors.switching.clusters import ClusterSessions
from connectors.switching.readings import drop_impostors
from connectors.zookeeper.session import NotConnectedError
from deploy.settings.application import Settings
from deploy.switch import precheck as precheck_command
from deploy.switch.precheck import report_lines
from policies.observations import Outcome
from policies.switching.ledgers import ClusterSnapshot, FindingReason, Layout
from policies.switching.precheck import precheck
from policies.switching.readings import FindingReading, SwitchPrecheck, SwitchRegistry
from policies.switching.state import ClusterStatus, RegistryEntry
from policies.units import UserError
from tests.cases import for_each
from tests.connectors.switching.test_readings import MemorySessions
from tests.deploy.switch.decisions import report
from tests.policies.switching.snapshots import DEDICATED, NOW_MS, snapshot

TAKEN = snapshot()


def registered(name: str, instance_id: str, status: ClusterStatus) -> RegistryEntry:
    return RegistryEntry(name=name, uri="zk://x", instance_id=instance_id, root="/ledgers/", status=status)


def registry(*clusters: RegistryEntry) -> SwitchRegistry:
    return SwitchRegistry(cluster="c1", outcome=Outcome.OK, clusters=clusters)


def test_what_is_registered_and_read_is_taken_as_it_is() -> None:
    new = registered("new", "id-of-new", ClusterStatus.STANDBY)
    view = registry(new, registered("old", "id-of-old", ClusterStatus.ACTIVE))
    assert view.committed() == "old"
    assert drop_impostors(TAKEN, view) == TAKEN
    assert drop_impostors(TAKEN, registry()) == TAKEN, "before anything is registered, the settings count"


def test_another_cluster_at_the_address_is_not_the_one_that_is_registered() -> None:
    view = registry(registered("new", "id-of-another", ClusterStatus.STANDBY))
    seen = drop_impostors(TAKEN, view)
    assert seen.problems == ("new: id-of-new/ledgers answers, but id-of-another/ledgers/ is registered",)
    assert precheck("c1", seen, DEDICATED, NOW_MS).reasons == (FindingReason.SNAPSHOT_INCOMPLETE,)


def test_precheck_and_plan_load_no_part_of_the_state_machine() -> None:
    code = "import sys, deploy.switch.precheck; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "policies.switching.precheck" in loaded
    machine = ("facts", "fold", "judge", "judge.table", "emit", "plan", "transition", "policy")
    assert not {f"policies.switching.{name}" for name in machine}.intersection(loaded)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_precheck_needs_no_settings_of_a_loop_and_a_registry_that_cannot_be_read_makes_it_incomplete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damaged: bool
) -> None:
    sessions = MemorySessions()
    if damaged:
        sessions.servers["brokers"].write("/admin/bookie-clusters/bootstrap", b"{")
    monkeypatch.setattr(precheck_command, "ClusterSessions", lambda *_: sessions)
    bookkeeper = {"bootstrap": "old", "clusters": {"old": {}, "new": {"zookeeper": {"servers": "new:2181"}}}}
    watched = {"zookeeper": {"servers": "brokers:2181"}, "bookkeeper": bookkeeper}
    settings = Settings.model_validate({"clusters": {"c1": watched}})
    with pytest.raises(UserError, match="bootstrap_servers is not set"):
        settings.loop_kafka()
    assert not precheck_command.run_precheck(settings, "c1", "new", as_json=True, explained=False)
    found = json.loads(capsys.readouterr().out)
    reasons = ["idgen_behind", *(["snapshot_incomplete"] if damaged else [])]
    assert [each["reason"] for each in found["findings"]] == reasons
    problems = ["the registry: /admin/bookie-clusters/bootstrap is damaged" in each for each in found["problems"]]
    assert problems == [True] * damaged


# --- what is shown of a report that the loop made


def shown(reading: SwitchPrecheck, *, explained: bool = True) -> list[str]:
    out = StringIO()
    for line in report_lines(reading, explained=explained):
        Console(file=out, width=200).print(line, highlight=False)
    return [line.strip() for line in out.getvalue().splitlines() if line.strip()]


def test_the_report_shows_what_was_found_and_what_to_do() -> None:
    finding = FindingReading(reason=FindingReason.FOREIGN_ID, detail="ledger 5 is there", remedy="Take another.")
    found = report(ready=False, to_import=1, greatest_id=7, source_next_id=8, findings=(finding, finding))
    lines = shown(found)
    assert set(lines) - set(shown(found, explained=False)) == {"foreign_id: Take another."}
    assert lines[0] == "NOT READY: old to new: foreign_id"
    assert lines[1:3] == ["next ledger ids: 8 in old, unknown in new", "1 ledger to import; the greatest id is 7"]
    assert lines.count("foreign_id: ledger 5 is there") == 2
    assert lines.count("foreign_id: Take another.") == 1
    assert lines[-1] == f"digest {'d' * 64}, counts for 10 min"
    assert shown(report())[0] == "READY: old to new"


def test_a_precheck_that_could_not_be_made_says_why() -> None:
    failed = report(outcome=Outcome.UNREACHABLE, detail="zk-1 is down", ready=False)
    assert shown(failed) == ["The precheck of new could not be made: unreachable: zk-1 is down"]


# --- a cluster is registered by what is read at its own address, and by nothing else


NEW = {"zookeeper": {"servers": "zk-2:2181/bk"}, "ledgers_root": "/l"}
BOOKKEEPER = {"bootstrap": "old", "clusters": {"old": {}, "new": NEW}}
WATCHED = {"zookeeper": {"servers": "zk-1:2181"}, "bookkeeper": BOOKKEEPER}
SETTINGS = Settings.model_validate({"clusters": {"c1": WATCHED}})


def cluster_found(**changes: Any) -> ClusterSnapshot:
    known = {"name": "new", "instance_id": "id-new", "root": "/bk/l", "layout": Layout.HIERARCHICAL, "generator": None}
    return ClusterSnapshot(**(known | changes), read_ms=0)


def reads(monkeypatch: pytest.MonkeyPatch, seen: ClusterSnapshot | Exception) -> None:
    """What is found at any cluster's address."""

    def read_cluster(_self: ClusterSessions, _name: str) -> ClusterSnapshot:
        if isinstance(seen, Exception):
            raise seen
        return seen

    monkeypatch.setattr(ClusterSessions, "read_cluster", read_cluster)


def test_it_is_registered_by_its_identity_and_its_address_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, cluster_found())
    assert precheck_command.identify_cluster(SETTINGS, "c1", "new") == {
        "name": "new", "uri": "zk+hierarchical://zk-2:2181/bk/l", "instance_id": "id-new", "root": "/bk/l",
    }  # fmt: skip


BLOCK = r"clusters\.c1\.bookkeeper\.clusters\.new"


@for_each(
    ("seen", "message"),
    [
        (cluster_found(instance_id=None), f"{BLOCK}: cannot be read: /bk/l/INSTANCEID: it is empty"),
        (cluster_found(layout=None), f"{BLOCK}: cannot be read: /bk/l/LAYOUT: it names neither"),
        (NotConnectedError({"zk-2": ConnectionRefusedError()}), f"{BLOCK}: cannot be read: zk-2"),
        (UserError("there is no node /bk"), "there is no node /bk"),
    ],
)
def test_what_cannot_be_served_is_refused_at_its_place_in_the_settings(
    monkeypatch: pytest.MonkeyPatch, seen: ClusterSnapshot | Exception, message: str
) -> None:
    reads(monkeypatch, seen)
    with pytest.raises(UserError, match=message):
        precheck_command.identify_cluster(SETTINGS, "c1", "new")


def test_a_name_that_the_settings_do_not_have_is_refused() -> None:
    with pytest.raises(UserError, match=r"clusters.c1.bookkeeper names no cluster third; it names old, new"):
        precheck_command.identify_cluster(SETTINGS, "c1", "third")
