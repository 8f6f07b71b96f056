"""Each guard taken away: what it prevented then happens. So every one of them is needed, and tested."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchVerdict
from policies.switching.judge import guards
from policies.switching.ledgers import LedgerKind
from policies.switching.readings import LedgerOutcome
from policies.switching.settings import DAY_MS
from policies.switching.state import LedgerStage, SwitchStage
from tests.policies.switching.events import answer, command
from tests.policies.switching.world import Bookies, HarmError, Held, Ref, World, codes, few, tell_of

S, L = SwitchStage, LedgerStage


def unharmed(world: World) -> None:
    """The machine's own second line has nothing to say either."""
    halts = [s.sentence for s in world.said if s.verdict is SwitchVerdict.HALT]
    if halts:
        raise HarmError(halts[0])


def orders(world: World, verdict: SwitchVerdict) -> int:
    return sum(s.verdict is verdict for s in world.said)


def forbid(done: object, what: str) -> None:
    if done:
        raise HarmError(what)


def registers(name: str, instance: str) -> Callable[[], None]:
    def scenario() -> None:
        world = World().to(S.REGISTERED)
        before = world.state.entries
        world.tell(command("register", "x", name=name, uri="zk://x", instance_id=instance, root="/ledgers"))
        forbid(world.state.entries != before, "registered")

    return scenario


def forgets_what_is_used() -> None:
    world = World().to(S.HOLD)
    world.tell(command("unregister", "x", name="old"))
    forbid(world.state.entry("old") is None, "forgotten")
    unharmed(world)


def starts(prepare: Callable[[World], None], target: str = "new", **more: Any) -> Callable[[], None]:
    def scenario() -> None:
        world = World()
        world.clusters["third"] = Bookies("third", "id-of-third", hob=9)
        world.to(S.PRECHECKED)
        prepare(world)
        before = world.state.epoch
        world.tell(world.start_event(target, **more))
        forbid(world.state.epoch != before, "started")

    return scenario


def other_switch(world: World) -> None:
    world.checked("third").triggered("new")


def starts_to_the_active_one() -> None:
    world = World().to(S.PRECHECKED)
    said = world.tell(world.start_event("old"))
    forbid(said[-1].code is not RejectCode.ALREADY_ACTIVE, "refused for what is not the reason")


def unready(world: World) -> None:
    world.clusters["new"].ledgers[world.refs["/c1"].ledger_id] = Held("foreign", world.now_ms)
    world.checked()


def unknown_layout(world: World) -> None:
    world.clusters["new"].layout = None
    world.later().tell(world.cluster_event("new"))


def overtaken(world: World) -> None:
    world.clusters["old"].hob = 1
    world.later().tell(world.cluster_event("old"))


def no_lease(world: World) -> None:
    world.state = replace(world.state, lease=None)


def goes_live(prepare: Callable[[World], None]) -> Callable[[], None]:
    def scenario() -> None:
        world = World().to(S.TRIGGERED)
        prepare(world)
        forbid(world.is_at(S.LIVE_DUAL_READ) or world.is_at(S.BUILD), "went live")
        unharmed(world)

    return scenario


def with_stale_ack(world: World) -> None:
    world.tell(world.members_event(), world.follow("b1"), world.broker_event("b2", epoch=0, writes=()))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))


def with_one_ack(world: World) -> None:
    world.tell(world.members_event(), world.follow("b1"))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))


def with_an_old_client(world: World) -> None:
    world.tell(world.members_event(), world.follow("b1"), world.follow("b2").but(client_epoch=0))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))


def with_writes(world: World) -> None:
    world.tell(world.members_event(), world.follow("b1"), world.follow("b2"), world.broker_event("b2", writes=("old",)))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))


def with_old_readings(world: World) -> None:
    world.tell(world.members_event(), *(world.follow(b) for b in world.brokers))


def with_overtaking(world: World) -> None:
    world.clusters["old"].hob, world.clusters["old"].created = 1, 0
    world.acks()


def with_broken_order(world: World) -> None:
    """The target moved to a later HOB before the directive was written, the source went beyond where it began."""
    world.clusters["new"].hob = 3
    seen = world.cluster_event("new")
    world.tell(replace(seen, epoch=0, read_ms=world.now_ms + 1))
    world.clusters["old"].hob, world.clusters["old"].created = 1, 7
    world.later().acks()
    forbid(not orders(world, SwitchVerdict.BLOCKED), "the reason is not told")


def foreign_at_inventory() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    world.clusters["new"].ledgers[world.refs["/c1"].ledger_id] = Held("foreign", world.now_ms)
    world.work()
    unharmed(world)


def foreign_at_copy() -> None:
    """Equal in all its entries; only its age and the journal tell."""
    world = World().to(S.BUILD)
    world.clusters["new"].ledgers[world.refs["/c1"].ledger_id] = Held("/c1", world.now_ms - DAY_MS)
    world.work()
    forbid(world.task("/c1").stage is not L.FOREIGN_CONFLICT, "a ledger of others counts as our copy")


def deleted_id() -> None:
    world = World().to(S.DONE)
    world.later().tell(world.inventory_event(), command("unregister", "u", name="old"))
    world.tell(command("register", "r", name="old", uri="zk://old", instance_id="id-of-old", root="/ledgers"))
    world.clusters["old"].hob, world.clusters["old"].created = 2, 0
    world.later().tell(world.cluster_event("old"), world.cluster_event("new"))
    world.orders.clear()
    world.tell(world.prechecked_event("old"))
    check = world.state.check("old")
    assert check is not None
    world.state = replace(world.state, checks=(replace(check, ready=True),))
    world.tell(command("start", "s", target="old", digest=check.digest))
    world.later().acks().work()
    unharmed(world)


def different_copy() -> None:
    world = World().to(S.BUILD)
    source = world.facts("old", world.refs["/c1"].ledger_id)
    tell_of(world, "/c1", LedgerOutcome.COPIED, source=source, target=replace(source, entries_digest="other"))
    forbid(world.task("/c1").stage is L.BUILT, "a copy that differs counts as built")


def wide_change() -> None:
    world = World().to(S.PROMOTE)
    tell_of(world, "/c1", LedgerOutcome.PROMOTED, changed=("attribution", "ledger_id"))
    forbid(world.task("/c1").stage is L.PROMOTED, "the change was wider than the attribute")


def early_cleanup_of_one_astray() -> None:
    """It acked, and writes to the old cluster all the same."""
    world = World().to(S.HOLD)
    world.later(15 * DAY_MS).tell(world.broker_event("b1", writes=("old",)), command("cleanup", "x"))
    forbid(not world.is_at(S.HOLD), "cleaned up while a broker writes there")


def rolled_back_too_early() -> None:
    world = World().to(S.TRIGGERED)
    world.later().tell(world.cluster_event("new"), command("abort", "x"), world.members_event())
    world.work()
    forbid(world.is_at(S.ROLLED_BACK), "no broker said that it is back")


def deletes_before_the_plan_is_read() -> None:
    world = World().to(S.HOLD)
    world.state = replace(world.state, switch=replace(world.switch, recovering_ms=world.now_ms))
    world.tell(command("end", "x", delete=True))
    forbid(world.is_at(S.CLEANUP), "ledgers are to be deleted that the command does not name")


def third_with_lower_ids() -> None:
    """The default rollback leaves brokers on new, and third gives what new gave already."""
    world = World()
    world.clusters["third"] = Bookies("third", "id-of-third", hob=1)
    world.to(S.HOLD)
    world.write("t1", "b1")
    world.tell(command("rollback", "x"))
    world.work().later().tell(*(world.cluster_event(n) for n in world.clusters))
    world.checked("third").triggered("third")
    if world.switch.target == "third":
        world.acks()
        world.write("t1", "b1")


def rejected_although_somebody_moved() -> None:
    """Nobody acked, and the target gave an id all the same."""
    world = World().to(S.TRIGGERED)
    world.follow("b1")
    world.write("t1", "b1")
    world.later().tell(world.cluster_event("new"), world.broker_event("b2", failed=True, epoch=world.switch.epoch))
    forbid(world.is_at(S.REJECTED), "brokers are sent back to lower ids")


def sent_back_on_an_old_reading() -> None:
    world = World().to(S.TRIGGERED)
    world.clusters["old"].hob, world.clusters["old"].created = 9, 0
    world.tell(world.cluster_event("old"), command("abort", "x"))
    forbid(not world.is_at(S.ROLLBACK), "refused, as if there were no way out before the next reading")
    forbid(world.state.active() == "old", "sent back before it is known what the target gave")
    world.later().tell(world.cluster_event("new"))
    forbid(world.state.active() != "old", "never sent back")


def after_window() -> None:
    world = World().to(S.HOLD)
    world.now_ms = world.switch.rollback_until_ms
    world.tell(command("rollback", "x"))
    forbid(not world.is_at(S.HOLD), "rolled back after its window")


def after_deletions() -> None:
    """Driven on within the window, after some ledgers were already deleted."""
    world = World(few(rollback_window="1d", cleanup_after="0s")).to(S.HOLD)
    tasks = tuple(replace(u, stage=L.CLEANED) if u.paths == ("/c1",) else u for u in world.switch.tasks)
    world.state = replace(world.state, switch=replace(world.switch, tasks=tasks))
    world.tell(command("rollback", "x"))
    forbid(not world.is_at(S.HOLD), "rolled back what is deleted")


def rolled_back_after_a_clean_up_that_was_ended() -> None:
    """One ledger that a cursor and a schema name, deleted for the cursor, before an operator ended the clean-up."""
    world = World(few(copy_concurrency=2, max_deletions=1, retries=3))
    world.refs["/s2"] = Ref(LedgerKind.SCHEMA, world.refs["/c1"].ledger_id, "/c1")
    world.to(S.CLEANUP).work(SwitchVerdict.TAKE_INVENTORY)
    [deletion], world.orders = world.orders, []
    world.tell(command("end", "a"), *world.carry_out(deletion), command("end", "b"))
    world.orders = []
    world.tell(command("rollback", "c"))
    world.work()
    forbid(world.task("/s2").stage is not L.PROMOTED, "taken back to a ledger that was deleted")
    forbid(not codes(world.tell(command("rollback", "d"))), "tried once more, in vain")


def brokers_back_too_early() -> None:
    world = World().to(S.HOLD)
    world.tell(command("rollback", "x", attribution_only=False))
    forbid(world.state.active() == "old", "brokers went back to lower ids")
    world.raise_ids()
    forbid(world.state.active() != "old", "never sent back")


def forgets_what_a_broker_reads() -> None:
    world = World().to(S.DONE).later()
    world.tell(world.inventory_event(), *(world.broker_event(b, reads=("old",)) for b in world.brokers))
    world.tell(world.members_event(), command("unregister", "x", name="old"))
    forbid(world.state.entry("old") is None, "forgotten although a broker reads it")


def early_cleanup() -> None:
    world = World().to(S.HOLD)
    world.tell(command("cleanup", "x"))
    world.work()
    unharmed(world)


def referenced() -> None:
    world = World().to(S.HOLD)
    world.refs["/c1"].attribution = "old"
    world.clean_up()
    unharmed(world)


def copy_that_a_schema_needs() -> None:
    """One ledger that a cursor and a schema name: the cursor is taken back, the schema is not."""
    world = World()
    world.refs["/s2"] = Ref(LedgerKind.SCHEMA, world.refs["/c1"].ledger_id, "/c1")
    world.to(S.HOLD).tell(command("rollback", "r"))
    schema = world.task("/s2")
    world.orders = [o for o in world.orders if o.task is None or o.task.key != schema.key]
    world.tell(answer(LedgerOutcome.FAILED, schema.ledger_id, schema.op))
    world.work()
    world.later(15 * DAY_MS).tell(world.members_event(), world.lease_event(2))
    world.work()


def unpromoted() -> None:
    world = World().to(S.HOLD)
    tasks = tuple(replace(u, promoted=False) if u.paths == ("/c1",) else u for u in world.switch.tasks)
    world.state = replace(world.state, switch=replace(world.switch, tasks=tasks))
    world.clean_up()
    unharmed(world)


def client_in_use() -> None:
    world = World().to(S.DONE)
    world.tell(world.close_event())
    forbid(orders(world, SwitchVerdict.CLOSE_CLIENT), "closed a client in use")


def without_lease() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    inventory = world.inventory_event()
    no_lease(world)
    world.tell(inventory)
    forbid(orders(world, SwitchVerdict.START_COPY) or world.is_at(S.BUILD), "went on without the lease")
    unharmed(world)


SCENARIOS: dict[str, list[Callable[[], None]]] = {
    "refuse_taken_name": [registers("old", "id-of-fourth"), registers("a/b", "id-of-fourth")],
    "refuse_cluster_in_use": [forgets_what_is_used],
    "refuse_without_lease": [starts(no_lease), without_lease],
    "refuse_other_switch": [starts(other_switch, "third")],
    "refuse_active_target": [starts_to_the_active_one],
    "refuse_unready_precheck": [starts(unready)],
    "refuse_same_identity": [starts(unknown_layout)],
    "refuse_taken_ids": [starts(overtaken), goes_live(with_overtaking), brokers_back_too_early],
    "refuse_missing_acks": [goes_live(with_one_ack), goes_live(with_stale_ack), goes_live(with_an_old_client)],
    "refuse_straying_brokers": [early_cleanup_of_one_astray],
    "refuse_brokers_away": [rolled_back_too_early],
    "refuse_lower_ids": [third_with_lower_ids],
    "refuse_used_by_broker": [forgets_what_a_broker_reads],
    "refuse_return": [brokers_back_too_early, rejected_although_somebody_moved, sent_back_on_an_old_reading],
    "refuse_writes_elsewhere": [goes_live(with_writes)],
    "refuse_early_readings": [goes_live(with_old_readings)],
    "refuse_broken_order": [goes_live(with_broken_order)],
    "refuse_foreign_ledger": [foreign_at_inventory, foreign_at_copy],
    "refuse_deleted_id": [deleted_id],
    "refuse_unequal_copy": [different_copy],
    "refuse_wide_change": [wide_change],
    "refuse_closed_window": [after_window],
    "refuse_begun_deletion": [after_deletions],
    "refuse_unknown_plan": [deletes_before_the_plan_is_read],
    "refuse_missing_source": [rolled_back_after_a_clean_up_that_was_ended],
    "refuse_early_cleanup": [early_cleanup],
    "refuse_referenced_ledger": [referenced],
    "refuse_shared_copy": [copy_that_a_schema_needs],
    "refuse_unpromoted": [unpromoted],
    "refuse_read_cluster": [client_in_use],
}
CASES = [(name, scenario) for name, scenarios in SCENARIOS.items() for scenario in scenarios]


def test_every_guard_has_a_scenario() -> None:
    public = {
        name
        for name, value in vars(guards).items()
        if name.startswith("refuse_") and getattr(value, "__annotations__", {}).get("return") == guards.Refusal
    }
    assert public == set(SCENARIOS)


@pytest.mark.parametrize(("name", "scenario"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
def test_without_its_guard_harm_is_done_and_with_it_none(
    name: str, scenario: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario()
    with monkeypatch.context() as patch:
        patch.setattr(guards, name, lambda *args: None)
        with pytest.raises(HarmError):
            scenario()
