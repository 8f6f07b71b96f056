"""Whole switches between two real BookKeeper clusters, carried out by the real loop; and what may befall them."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from policies.switching.ledgers import LedgerKind
from policies.switching.readings import CommandName
from tests.system.loop import UNHURRIED
from tests.system.switching import NEW, OLD, BrokerCluster, Clusters, SwitchLoop, Tree
from tests.system.waiting import eventually

NAMES = ("whole", "brief", "foreign", "back", "anew", "stall")
WHOLE, BRIEF, FOREIGN, BACK, ANEW, STALL = NAMES

SLOW = {"copy_concurrency": 8, "max_deletions": 8}
"""So that each stage lasts long enough to be killed in."""
SHARED = {"target_policy": "shared"}
HOURS = {**SHARED, "rollback_window": "6h", "cleanup_after": "6h"}
"""How long after going live these switches can be rolled back; only then is anything deleted."""
CLUSTERS = {
    WHOLE: SLOW,
    BRIEF: SLOW,
    FOREIGN: SHARED,
    ANEW: {**SHARED, **SLOW, "strategies": {"schema": "remap"}},
    STALL: {**HOURS, "ack_timeout": "5s"},
    BACK: HOURS,
}


@pytest.fixture(scope="module")
def clusters(bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with Clusters(tmp_path_factory.mktemp("switching"), bookkeeper_jars) as clusters:
        yield clusters


@pytest.fixture(scope="module")
def loop(loop_kafka: str, clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchLoop]:
    loop = SwitchLoop(loop_kafka, f"t{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("switch-loop"))
    watched = {name: BrokerCluster(clusters, name, loop.kafka, loop.prefix) for name in NAMES}
    for brokers in watched.values():
        brokers.make()
    policy = {"rollback_window": "2s", "cleanup_after": "2s", "clusters": CLUSTERS}
    loop.write({name: brokers.settings() for name, brokers in watched.items()}, {"switching": policy}, UNHURRIED)
    loop.start("decide", "act")
    yield loop
    loop.close()


def kill_everything(clusters: Clusters, loop: SwitchLoop) -> None:
    """The query, the executor with its JVM, and ZooKeeper, at once; and start them again."""
    loop.kill("decide", "act")
    clusters.zookeeper.kill()
    clusters.zookeeper.start()
    loop.start("decide", "act")


STAGES = ("triggered", "live_dual_read", "build", "promote", "hold", "cleanup")


@pytest.mark.parametrize(
    ("name", "killed_at", "size"),
    [(BRIEF, {"build"}, 20), pytest.param(WHOLE, set(STAGES), 90, marks=pytest.mark.long)],
    ids=["one of them", "all of them"],
)
def test_a_switch_ends_as_it_should_though_all_is_killed_at_stages(
    clusters: Clusters, loop: SwitchLoop, name: str, killed_at: set[str], size: int
) -> None:
    def maybe_kill(stage: str) -> None:
        if stage in killed_at:
            kill_everything(clusters, loop)

    with BrokerCluster(clusters, name, loop.kafka, loop.prefix) as brokers:
        clusters.set_back_new()
        brokers.fill(schemas=size, cursors=size)
        brokers.register(*brokers.brokers)
        loop.register(brokers)
        behind = loop.precheck(name)
        assert (behind["args"]["ready"], loop.begin(name)["code"]) == (False, "PRECHECK_FAILED"), behind
        clusters.advance_new(1)
        source = clusters.tree(f"/{OLD}")

        assert loop.begin(name)["verdict"] == "advance"
        loop.await_stage(name, "triggered")
        maybe_kill("triggered")
        assert loop.stage(name) == "triggered", "nobody acked"
        brokers.start_agents()
        for stage in ("live_dual_read", "build", "promote"):
            loop.await_seen(name, stage)
            maybe_kill(stage)
        loop.await_stage(name, "hold")
        maybe_kill("hold")

        assert clusters.tree(f"/{OLD}") == source, "nothing of the source is changed before the clean-up"
        assert brokers.attributions() == {key: {NEW} for key in brokers.ledgers}
        assert brokers.copies_differ() == []
        assert brokers.registry("directive") == {"epoch": 1, "target": NEW}
        assert loop.command(name, CommandName.ROLLBACK)["code"] == "WINDOW_EXPIRED"
        listed = loop.command(name, CommandName.CLEANUP)
        assert (listed["verdict"], f"{len(brokers.ledgers)} ledgers" in listed["explanation"]) == ("preview", True)
        assert clusters.tree(f"/{OLD}") == source, "a dry run deletes nothing"

        assert loop.command(name, CommandName.CLEANUP, dry_run=False)["verdict"] == "advance"
        loop.await_seen(name, "cleanup")
        maybe_kill("cleanup")
        loop.await_stage(name, "done")
        assert clusters.ledger_ids(OLD, list(brokers.ledgers)) == set()
        assert brokers.copies_differ() == []
        assert [brokers.registry(f"clusters/{each}")["status"] for each in (OLD, NEW)] == ["deprecated", "active"]
        assert brokers.registry("committed") == {"epoch": 1}

        def may_close() -> bool:
            closing = loop.command(name, CommandName.CLOSE_CLIENT, args={"name": OLD})
            return bool(closing["verdict"] == "close-client")

        eventually("the client of the old cluster may be closed", may_close)
        eventually("all closed theirs", lambda: all(broker.closed for broker in brokers.brokers))
        assert {tuple(broker.closed) for broker in brokers.brokers} == {(OLD,)}


def test_a_foreign_ledger_is_never_touched_and_a_silent_broker_holds_the_switch(
    clusters: Clusters, loop: SwitchLoop
) -> None:
    with BrokerCluster(clusters, FOREIGN, loop.kafka, loop.prefix) as brokers:
        clusters.advance_new(1)
        brokers.fill(schemas=6, cursors=6)
        silent = brokers.brokers[2]
        brokers.start_agents(*brokers.brokers[:2])
        brokers.register(silent)
        loop.register(brokers)
        assert loop.begin(FOREIGN)["verdict"] == "advance"

        def two_of_three() -> bool:
            seen = loop.records(FOREIGN)[-1]["brokers"]
            return (seen["live"], seen["acked"], len(seen["awaited"])) == (3, 2, 1)

        eventually("two of three acked", two_of_three)
        # Of the same length and last entry as the one to come, and yet another one.
        victim = next(i for i, entries in brokers.ledgers.items() if len(entries) == 1)
        planted = [bytes(len(entry)) for entry in brokers.ledgers[victim]]
        clusters.ledgers.write(clusters.servers(NEW), victim, planted)
        assert loop.stage(FOREIGN) == "triggered", "a broker never acked"

        brokers.start_agents(silent)
        loop.await_stage(FOREIGN, "hold")
        said = [(e.data["verdict"], e.data["reason"]) for e in loop.decisions(FOREIGN) if _is_about(e.data, victim)]
        assert ("remap-required", "foreign_id") in said, said
        assert clusters.ledgers.read(clusters.servers(NEW), victim) == planted
        kept = {ledger: owners for ledger, owners in brokers.attributions().items() if owners != {NEW}}
        assert list(kept) == [victim]
        assert kept[victim] <= {OLD, None}

        assert loop.command(FOREIGN, CommandName.CLEANUP, dry_run=False)["verdict"] == "advance"
        assert loop.await_stage(FOREIGN, "done_with_failures")["ledgers"]["foreign_conflict"] == 1
        assert clusters.ledger_ids(OLD, list(brokers.ledgers)) == {victim}

        clusters.ledgers.delete(clusters.servers(NEW), victim)
        assert loop.begin_again(FOREIGN)["verdict"] == "advance"
        loop.await_stage(FOREIGN, "hold")
        assert brokers.attributions() == {key: {NEW} for key in brokers.ledgers}
        assert loop.command(FOREIGN, CommandName.CLEANUP, dry_run=False)["verdict"] == "advance"
        loop.await_stage(FOREIGN, "done")
        assert brokers.copies_differ() == []


def test_a_switch_by_hand_is_rolled_back_after_a_lost_checkpoint_and_its_copies_stay_until_the_window_ends(
    clusters: Clusters, loop: SwitchLoop
) -> None:
    with BrokerCluster(clusters, BACK, loop.kafka, loop.prefix) as brokers:
        source = switch_by_hand(clusters, loop, brokers)
        ledgers = loop.records(BACK)[-1]["ledgers"]
        status, said = loop.cli("cleanup", "--cluster", BACK, "--execute", "--yes")
        assert (status, "WINDOW_NOT_ELAPSED" in said) == (1, True), said

        loop.lose_checkpoint()

        def has_plan() -> bool:
            seen = loop.records(BACK)[-1]
            return (seen["verdict"], seen["recovering"], seen["ledgers"]) == ("hold", False, ledgers)

        eventually("the switch is taken up where it was", has_plan)
        status, said = loop.cli("rollback", "--cluster", BACK, "--yes")
        assert status == 0, said
        loop.await_stage(BACK, "rolled_back")
        status, said = loop.cli("status", "--cluster", BACK)
        assert (status, "[rolled_back]" in said) == (0, True), said
        assert brokers.attributions() == {key: {OLD} for key in brokers.ledgers}
        assert clusters.ledger_ids(NEW, list(brokers.ledgers)) == set(brokers.ledgers), "the window is open"
        assert clusters.tree(f"/{OLD}") == source
        assert brokers.registry("directive") == {"epoch": 1, "target": NEW}, "attributions only"


def switch_by_hand(clusters: Clusters, loop: SwitchLoop, brokers: BrokerCluster) -> Tree:
    """Switch a cluster by commands up to its hold; returns what the old BookKeeper cluster held before."""
    clusters.advance_new(1)
    brokers.fill(schemas=6, cursors=6)
    brokers.start_agents()
    for name in (OLD, NEW):
        status, said = loop.cli("register", "--cluster", brokers.name, "--name", name)
        assert status == 0, said
    source = clusters.tree(f"/{OLD}")
    status, said = loop.cli("start", "--cluster", brokers.name, "--target", NEW, "--yes")
    assert (status, "READY: old to new" in said) == (0, True), said
    loop.await_stage(brokers.name, "hold")
    return source


def raise_ids(clusters: Clusters, loop: SwitchLoop, name: str) -> None:
    """Brokers go back to greater ids only: create the HOB in the old cluster that the status names."""

    def named() -> re.Match[str] | None:
        return re.search(
            r"old gives .*?advance to (HOB-\d+)", " ".join(loop.cli("status", "--cluster", name)[1].split())
        )

    eventually("the status names the HOB to create", lambda: named() is not None)
    found = named()
    assert found is not None
    clusters.create_hob(OLD, found[1])


def _is_about(decision: dict[str, object], ledger_id: int) -> bool:
    ledger = decision["ledger"]
    return isinstance(ledger, dict) and ledger["ledger_id"] == ledger_id


@pytest.mark.long  # varies `test_a_switch_ends_as_it_should`
def test_schemas_are_remapped_where_foreign_ledgers_have_their_ids(clusters: Clusters, loop: SwitchLoop) -> None:
    with BrokerCluster(clusters, name := ANEW, loop.kafka, loop.prefix) as brokers:
        clusters.advance_new(5)  # beyond the old one, which an earlier way back advanced
        brokers.fill(schemas=12, cursors=3)
        before = {(each.path, each.position): each for each in brokers.references()}
        schemas = {each.ledger_id for each in before.values() if each.kind is LedgerKind.SCHEMA}
        planted = {ledger_id: [bytes(len(entry)) for entry in brokers.ledgers[ledger_id]] for ledger_id in schemas}
        for ledger_id, entries in planted.items():
            clusters.ledgers.write(clusters.servers(NEW), ledger_id, entries)
        brokers.start_agents()
        loop.register(brokers)
        assert loop.begin(name)["verdict"] == "advance"
        loop.await_stage(name, "hold")

        after = {(each.path, each.position): each for each in brokers.references()}
        assert after.keys() == before.keys()
        assert {each.attribution for each in after.values()} == {NEW}
        moved = {before[place].ledger_id: each.ledger_id for place, each in after.items()}
        assert {ledger_id for ledger_id, there in moved.items() if there != ledger_id} == schemas
        assert len(set(moved.values())) == len(moved), "each has an id of its own"
        assert min(moved[ledger_id] for ledger_id in schemas) >= 2**32, "which the new cluster's generator gave"

        assert loop.command(name, CommandName.CLEANUP, dry_run=False)["verdict"] == "advance"
        loop.await_stage(name, "done")
        read = clusters.ledgers.read
        assert {i: read(clusters.servers(NEW), there) for i, there in moved.items()} == brokers.ledgers
        assert {i: read(clusters.servers(NEW), i) for i in schemas} == planted
        assert clusters.ledger_ids(OLD, list(brokers.ledgers)) == set()


# --- two nights by docs/switching-runbook.md


def says(loop: SwitchLoop, status: int, *words: str, expected: str) -> str:
    """Run a command of the runbook; it ends with this status, and its output has this text."""
    ended, said = loop.cli(*words)
    said = " ".join(said.split())
    print(f"$ headgate switch {' '.join(words)}   [{ended}]\n{said}\n")  # noqa: T201
    assert (ended, expected in said) == (status, True), said
    return said


def await_status(loop: SwitchLoop, cluster: str, expected: str) -> None:
    def shows() -> bool:
        return expected in " ".join(loop.cli("status", "--cluster", cluster)[1].split())

    eventually(f"the status of {cluster} shows: {expected}", shows)
    says(loop, 0, "status", "--cluster", cluster, expected=expected)


@pytest.mark.long  # varies `test_a_switch_ends_as_it_should`
def test_a_night_in_which_copies_stall_an_agent_is_silent_and_brokers_go_back(
    clusters: Clusters, loop: SwitchLoop
) -> None:
    at = ("--cluster", STALL)
    with BrokerCluster(clusters, STALL, loop.kafka, loop.prefix) as brokers:
        clusters.advance_new(9)  # beyond the old one, which earlier ways back advanced
        brokers.fill(schemas=4, cursors=4)
        brokers.start_agents()
        for name in (OLD, NEW):
            says(loop, 0, "register", *at, "--name", name, expected="write-registry")
        says(loop, 0, "precheck", *at, "--target", NEW, "--explain", expected="READY")
        says(loop, 0, "plan", *at, "--target", NEW, expected="ledgers")
        clusters.bookies[NEW].freeze()
        says(loop, 0, "start", *at, "--target", NEW, "--yes", expected="begins, epoch 1")
        await_status(loop, STALL, "[build]")
        says(loop, 0, "pause", *at, "--yes", expected="paused at build")
        await_status(loop, STALL, "is paused by an operator")
        says(loop, 0, "resume", *at, "--yes", expected="goes on at build")

        silent = brokers.brokers[0]
        silent.stop_agent()
        await_status(loop, STALL, f"switch-broker-astray: {silent.name} is not heard of")
        says(loop, 0, "rollback", *at, "--with-brokers", "--yes", expected="is rolled back")
        raise_ids(clusters, loop, STALL)
        await_status(loop, STALL, f"directive to {OLD}: {silent.name}")
        clusters.bookies[NEW].thaw()
        brokers.start_agents(silent)
        loop.await_stage(STALL, "rolled_back")
        assert brokers.registry("directive")["target"] == OLD
        assert brokers.attributions().keys() == brokers.ledgers.keys()
        assert not any(NEW in owners for owners in brokers.attributions().values())
        assert clusters.hobs(OLD)[-1] > "HOB-0000000009", "to greater ids only"
        assert clusters.ledger_ids(OLD, list(brokers.ledgers)) == set(brokers.ledgers)
