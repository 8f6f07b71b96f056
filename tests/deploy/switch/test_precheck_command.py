"""What was read counts only where it is what is registered."""

import json
import subprocess
import sys

import pytest

from deploy.settings.application import Settings
from deploy.switch import precheck as precheck_command
from deploy.switch.precheck import drop_impostors
from policies.observations import Outcome
from policies.switching.ledgers import FindingReason
from policies.switching.precheck import precheck
from policies.switching.readings import SwitchRegistry
from policies.switching.state import ClusterStatus, RegistryEntry
from policies.units import UserError
from tests.connectors.switching.test_readings import MemorySessions
from tests.policies.switching.snapshots import DEDICATED, NOW_MS, snapshot

TAKEN = snapshot()


def registered(name: str, instance_id: str, status: ClusterStatus) -> RegistryEntry:
    return RegistryEntry(name=name, uri="zk://x", instance_id=instance_id, root="/ledgers/", status=status)


def registry(*clusters: RegistryEntry) -> SwitchRegistry:
    return SwitchRegistry(cluster="c1", outcome=Outcome.OK, clusters=clusters)


def test_what_is_registered_and_read_is_taken_as_it_is() -> None:
    view = registry(
        registered("new", "id-of-new", ClusterStatus.STANDBY), registered("old", "id-of-old", ClusterStatus.ACTIVE)
    )
    assert view.committed() == "old"
    assert drop_impostors(TAKEN, view) == TAKEN
    assert drop_impostors(TAKEN, registry()) == TAKEN, "before anything is registered, the settings count"


def test_another_cluster_at_the_address_is_not_the_one_that_is_registered() -> None:
    view = registry(registered("new", "id-of-another", ClusterStatus.STANDBY))
    seen = drop_impostors(TAKEN, view)
    assert seen.problems == ("new: id-of-new/ledgers answers, but id-of-another/ledgers/ is registered",)
    assert precheck("c1", seen, DEDICATED, NOW_MS).reasons == (FindingReason.SNAPSHOT_INCOMPLETE,)


def test_precheck_and_plan_load_no_part_of_the_state_machine() -> None:
    code = "import sys, deploy.switch.precheck, deploy.switch.plan; print(*sys.modules)"
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
