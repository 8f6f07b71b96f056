"""Random runs over a model of two clusters: no harm, no breach; and harm is found as soon as a guard is taken away."""

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from policies.switching.decisions import SwitchVerdict
from policies.switching.judge import guards
from policies.switching.readings import LedgerOutcome
from policies.switching.settings import DAY_MS, SwitchingSettings
from policies.switching.state import SwitchAction, SwitchStage
from tests.policies.switching.commands import command
from tests.policies.switching.events import LedgerResult, StatusResult
from tests.policies.switching.world import HarmError, Held, World, few, stored

PATHS = st.sampled_from(["/c1", "/c2", "/s1"])
BROKERS = st.sampled_from(["b1", "b2"])
CLUSTERS = st.sampled_from(["old", "new"])


class TwoClusters(RuleBasedStateMachine):
    """Brokers write, executors work, people command, things are lost, repeated, late and foreign."""

    world: World
    limits: SwitchingSettings | None = None

    @initialize(
        stage=st.sampled_from(
            [
                SwitchStage.PRECHECKED,
                SwitchStage.TRIGGERED,
                SwitchStage.LIVE_DUAL_READ,
                SwitchStage.BUILD,
                SwitchStage.PROMOTE,
                SwitchStage.HOLD,
                SwitchStage.DONE,
            ]
        ),
        fewer=st.integers(0, 2),
    )
    def begin(self, stage: SwitchStage, fewer: int) -> None:
        """Runs begin anywhere on the way, so that they get everywhere."""
        self.world = World(self.limits)
        for path in ["/c2", "/s1"][:fewer]:
            del self.world.refs[path]
        self.world.to(stage)

    # --- people

    @rule(checked=st.booleans())
    def start(self, checked: bool) -> None:
        if checked:
            self.world.later().tell(self.world.prechecked_event())
        self.world.tell(self.world.start_event())

    @rule()
    @precondition(lambda self: self.world.stage is SwitchStage.DONE)
    def go_back(self) -> None:
        """A, B, A: the old cluster becomes a target, with a generator that is beyond."""
        world, old = self.world, self.world.clusters["old"]
        world.later().tell(world.inventory_event("old"), command("unregister", world.key(), name="old"))
        world.tell(
            command("register", world.key(), name="old", uri="zk://old", instance_id="id-of-old", root="/ledgers")
        )
        old.hob, old.created = (old.hob or 1) + 2, 0
        world.tell(*(world.cluster_event(n) for n in world.clusters))
        # A report that was wrong must not matter: what it overlooked is found ledger by ledger.
        world.tell(msgspec.structs.replace(world.prechecked_event("old"), ready=True))
        world.tell(world.start_event("old"))

    @rule(attribution_only=st.booleans())
    def roll_back(self, attribution_only: bool) -> None:
        self.world.tell(command("rollback", self.world.key(), attribution_only=attribution_only))

    @rule(dry_run=st.booleans())
    def clean_up(self, dry_run: bool) -> None:
        self.world.tell(command("cleanup", self.world.key(), dry_run=dry_run))

    @rule(hob=st.integers(1, 3), name=CLUSTERS)
    def advance_generator(self, name: str, hob: int) -> None:
        """As `--explain` says; while nothing is under way, as one who reads it does."""
        one = self.world.clusters[name]
        if self.world.state.live_switch() is None and hob > (one.hob or 0):
            one.hob, one.created = hob, 0

    # --- the world

    @rule(milliseconds=st.sampled_from([1, 1000, DAY_MS, 15 * DAY_MS]))
    def time_passes(self, milliseconds: int) -> None:
        if (
            self.world.stage in (SwitchStage.HOLD, SwitchStage.CLEANUP, SwitchStage.ROLLED_BACK)
            or milliseconds < DAY_MS
        ):
            self.world.later(milliseconds)
        self.world.tell(self.world.members_event())

    @rule(broker=BROKERS)
    def broker_follows(self, broker: str) -> None:
        self.world.later().tell(self.world.follow(broker))

    @rule(broker=BROKERS, topic=st.sampled_from(["t1", "t2"]))
    @precondition(lambda self: self.world.state.directive is None or self.world.stage is not SwitchStage.TRIGGERED)
    def broker_writes(self, broker: str, topic: str) -> None:
        """Once a switch is live; before that a topic's owner is the same broker on either side of its move."""
        self.world.write(topic, broker)

    @rule(broker=BROKERS)
    @precondition(lambda self: self.world.now_ms % 7 == 0)
    def client_fails(self, broker: str) -> None:
        self.world.later().tell(self.world.broker_event(broker, failed=True, epoch=self.world.state.epoch))

    @rule(broker=BROKERS)
    def broker_lags(self, broker: str) -> None:
        """It says again what it last did."""
        self.world.later().tell(self.world.broker_event(broker))

    @rule()
    def read_all(self) -> None:
        self.world.later().tell(*(self.world.cluster_event(n) for n in self.world.clusters), self.world.members_event())

    @rule(path=PATHS)
    def foreign_ledger(self, path: str) -> None:
        """Someone makes a ledger of an id to import in the target, equal in length and last entry id."""
        ref, new = self.world.refs.get(path), self.world.clusters["new"]
        if (
            ref is not None
            and ref.ledger_id not in new.ledgers
            and ref.attribution != "new"
            and ref.ledger_id < 2**31
            and self.world.stage is not SwitchStage.DONE
        ):
            asked = any(o.task and o.task.ledger_id == ref.ledger_id for o in self.world.orders)
            new.ledgers[ref.ledger_id] = Held("foreign", self.world.now_ms - (DAY_MS if asked else 0))

    @rule(path=PATHS)
    def source_is_lost(self, path: str) -> None:
        ref = self.world.refs.get(path)
        if ref is not None and self.world.stage in (
            SwitchStage.REGISTERED,
            SwitchStage.PRECHECKED,
            SwitchStage.LIVE_DUAL_READ,
        ):
            self.world.clusters["old"].ledgers.pop(ref.ledger_id, None)

    @rule(path=PATHS)
    @precondition(lambda self: self.world.stage is SwitchStage.HOLD)
    def reference_comes_back(self, path: str) -> None:
        """Someone puts the znode of before the switch back."""
        ref, switch = self.world.refs.get(path), self.world.switch
        tasks = [u for u in switch.tasks if path in u.paths]
        if ref is not None and tasks and tasks[0].ledger_id in self.world.clusters[switch.source].ledgers:
            ref.attribution, ref.ledger_id = switch.source, tasks[0].ledger_id

    # --- executors

    @rule()
    def executor_works(self) -> None:
        if self.world.orders:
            order = self.world.orders.pop(0)
            self.world.later(10).tell(*self.world.carry_out(order))

    @rule(data=st.data())
    def executor_is_slow(self, data: st.DataObject) -> None:
        """Orders are carried out in any order."""
        if self.world.orders:
            order = self.world.orders.pop(data.draw(st.integers(0, len(self.world.orders) - 1)))
            self.world.later(10).tell(*self.world.carry_out(order))

    @rule()
    def executor_dies(self) -> None:
        """It did its work and could not say so; another one takes over."""
        if self.world.orders:
            list(self.world.carry_out(self.world.orders.pop(0)))
        self.world.orders.clear()
        lease = self.world.state.lease
        self.world.later().tell(self.world.lease_event((lease.token if lease else 0) + 1))

    @rule(outcome=st.sampled_from([LedgerOutcome.FAILED, LedgerOutcome.CONFLICT, LedgerOutcome.ADVANCED]), path=PATHS)
    def executor_fails(self, outcome: LedgerOutcome, path: str) -> None:
        tasks = [u for u in (self.world.state.switch.tasks if self.world.state.switch else ()) if path in u.paths]
        for task in tasks:
            self.world.orders = [o for o in self.world.orders if o.task is None or o.task.ledger_id != task.ledger_id]
            self.world.tell(LedgerResult(task.ledger_id, task.op, outcome))

    @rule(data=st.data())
    def something_is_repeated(self, data: st.DataObject) -> None:
        """Anything that was ever heard, but for the lease's end of time, may be heard again, late."""
        if self.world.history:
            _, event = data.draw(st.sampled_from(self.world.history[-20:]))
            self.world.tell(event)

    @rule()
    def status_fails(self) -> None:
        switch = self.world.state.switch
        if switch is not None and switch.awaiting is SwitchAction.STATUS_NEW:
            self.world.tell(StatusResult(switch.awaiting, switch.op, ok=False))

    @rule()
    def all_goes_well(self) -> None:
        """A stretch of good luck, so that runs get far."""
        world = self.world
        if world.stage is SwitchStage.TRIGGERED:
            world.acks()
        world.later().work()

    # --- what must hold

    @invariant()
    def no_breach(self) -> None:
        world = getattr(self, "world", None)
        if world is None:
            return
        for said in world.said:
            if said.verdict is SwitchVerdict.HALT:
                raise HarmError(said.sentence)
        assert stored(world.state) == world.state

    @invariant()
    def a_live_switch_has_every_broker(self) -> None:
        world = getattr(self, "world", None)
        if world is not None and world.stage in (
            SwitchStage.LIVE_DUAL_READ,
            SwitchStage.BUILD,
            SwitchStage.PROMOTE,
            SwitchStage.HOLD,
        ):
            for broker in world.brokers:
                if world.acked.get(broker) != world.switch.epoch:
                    raise HarmError(f"INV-3: {broker} may still write to {world.switch.source}")

    @invariant()
    def brokers_of_a_held_switch_see_the_target(self) -> None:
        world = getattr(self, "world", None)
        if world is not None and world.stage in (SwitchStage.HOLD, SwitchStage.CLEANUP, SwitchStage.DONE):
            assert world.state.active() == world.switch.target

    @invariant()
    def every_reference_leads_to_its_ledger(self) -> None:
        world = getattr(self, "world", None)
        if world is None:
            return
        for path, ref in world.refs.items():
            held = world.clusters[ref.attribution or "old"].ledgers.get(ref.ledger_id)
            moved = ref.attribution == world.switch.target if world.state.switch else False
            if ref.ledger_id >= 0 and moved and (held is None or held.content != ref.content):
                raise HarmError(f"{path} leads nowhere")


QUICK = settings(
    max_examples=settings().max_examples,
    stateful_step_count=40,
    report_multiple_bugs=False,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=1500, phases=[Phase.generate])


class SchemasAnew(TwoClusters):
    """Schemas get new ids in the target, whatever stands there under theirs."""

    limits = few(strategies={"schema": "remap"})


@pytest.mark.parametrize("runs", [TwoClusters, SchemasAnew])
def test_random_runs_do_no_harm(runs: type[TwoClusters]) -> None:
    run_state_machine_as_test(runs, settings=QUICK)


FOUND_BY_CHANCE = {"refuse_taken_ids": 2, "refuse_early_cleanup": 13, "refuse_referenced_ledger": 0}
"""Guards whose harm random runs meet, and a seed by which they soon do; `test_guards` leads to the
harm of each of the others."""


@pytest.mark.parametrize(("name", "number"), FOUND_BY_CHANCE.items())
def test_random_runs_find_the_harm_of_a_missing_guard(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Seeded(TwoClusters):
        """With its own seed."""

    monkeypatch.setattr(guards, name, lambda *args: None)
    with pytest.raises(HarmError):
        run_state_machine_as_test(seed(number)(Seeded), settings=LONG)
