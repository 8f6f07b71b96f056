"""A model of two BookKeeper clusters, brokers, references and executors, which knows when harm is done.

The machine sees it through observations only; `HarmError` is what must never happen, judged from the world itself.
"""

import pickle
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import msgspec

from policies.switching.decisions import ORDERS, RejectCode, SwitchVerdict
from policies.switching.facts import load_plan
from policies.switching.fold import InventorySeen
from policies.switching.ledgers import (
    ClusterSnapshot,
    IdGenerator,
    Layout,
    Ledger,
    LedgerKind,
    LedgerState,
    Reference,
    TargetPolicy,
)
from policies.switching.policy import reconcile
from policies.switching.precheck import PrecheckSnapshot, TargetLedgers, precheck
from policies.switching.readings import (
    LedgerOutcome,
    SwitchBroker,
    SwitchBrokers,
    SwitchCommand,
    SwitchInventory,
    SwitchLease,
    SwitchLedger,
    SwitchRegistry,
)
from policies.switching.settings import DAY_MS, HOUR_MS, SwitchingSettings
from policies.switching.state import (
    UNDONE,
    Directive,
    LedgerStage,
    LedgerTask,
    Switch,
    SwitchAction,
    SwitchingState,
    SwitchStage,
)
from policies.switching.transition import DecisionDraft, Transition
from policies.units import millis_of
from tests.policies.switching.events import CLUSTER, OK, Event, Made, answer, command, observations_of, status

START_MS = 1_800_000_000_000
LONG_LEASE = 400 * DAY_MS


def few(**changes: Any) -> SwitchingSettings:
    """Settings by which few things happen at once."""
    block = {"copy_concurrency": 2, "max_deletions": 2, "retries": 3, "orders_ahead": 0}
    return SwitchingSettings.model_validate(block | changes)


class HarmError(AssertionError):
    """Data was lost, overwritten, mixed up or put out of order."""


@dataclass
class Held:
    """A ledger in a cluster: its content, and from where headgate copied it, if it did."""

    content: str
    created_ms: int
    complete: bool = True
    by_headgate: bool = False
    source: str = "id-of-old"


@dataclass
class Bookies:
    """A BookKeeper cluster."""

    name: str
    instance: str
    hob: int | None = None
    created: int = 0
    layout: Layout | None = Layout.HIERARCHICAL
    lower_given: int = 0
    """The number of ids that clients took below the present ``HOB``, which they remember."""
    lower: dict[int, int] = field(default_factory=dict)
    """The number of ids that each former ``HOB`` gave; 0 is ``idgen``."""
    ledgers: dict[int, Held] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)

    @property
    def generator(self) -> IdGenerator:
        return IdGenerator(self.hob, 2 * self.created, 0)

    def advance(self, hob: int) -> None:
        """Create a later ``HOB``; a client that is open goes on below it."""
        if hob > (self.hob or 0):
            self.lower[self.hob or 0] = self.created
            self.hob, self.created = hob, 0

    def allocate(self, content: str, now_ms: int, hob: int | None = None) -> int:
        """Create a ledger under the next id, as a broker does; its client remembers a ``HOB``, else the present one."""
        if hob is None or hob not in self.lower:
            ledger_id = self.generator.next_id
            self.created += 1
        else:
            ledger_id = hob << 32 | self.lower[hob]
            self.lower[hob] += 1
            self.lower_given += 1
        if ledger_id in self.ledgers:
            raise HarmError(f"INV-2: {self.name} gave {ledger_id}, which exists")
        if ledger_id in self.deleted:
            raise HarmError(f"INV-6: {self.name} gave {ledger_id}, which was deleted")
        self.ledgers[ledger_id] = Held(content, now_ms)
        return ledger_id


@dataclass
class Ref:
    """A znode that names a ledger."""

    kind: LedgerKind
    ledger_id: int
    content: str
    attribution: str | None = None


class World:
    """Everything there is, and the machine that watches it."""

    goes_on_reporting = True

    def __init__(self, limits: SwitchingSettings | None = None, policy: TargetPolicy = TargetPolicy.SHARED) -> None:
        self.limits = limits or few()
        self.policy = policy
        self.now_ms = START_MS
        self.clusters = {"old": Bookies("old", "id-of-old"), "new": Bookies("new", "id-of-new", hob=1)}
        self.refs: dict[str, Ref] = {}
        self.topics: dict[str, list[int]] = {"t1": [], "t2": []}
        self.brokers: dict[str, str] = {"b1": "old", "b2": "old"}
        self.acked: dict[str, int] = {}
        self.sequences: dict[str, int] = {}
        self.state = SwitchingState()
        self.said: list[DecisionDraft] = []
        self.orders: list[DecisionDraft] = []
        self.history: list[tuple[int, Event]] = []
        self.keys = 0
        self.lost: Held | None = None
        self.deletes_early = False
        """Whether an operator ended the switch, and deletes the copied ledgers before `cleanup_from`."""
        self.is_shared = False
        """Whether the order that is carried out is about a ledger that both kinds of reference name."""
        self.new_ids: dict[tuple[str, int], int] = {}
        """What the executors' journal knows: by target and id in the source, the new id of a copy."""
        old = self.clusters["old"]
        for topic in self.topics:
            self.write(topic, "b1")
        for path, kind in (("/c1", LedgerKind.CURSOR), ("/s1", LedgerKind.SCHEMA), ("/c2", LedgerKind.CURSOR)):
            self.refs[path] = Ref(kind, old.allocate(path, self.now_ms), path)
        self.refs["/none"] = Ref(LedgerKind.CURSOR, -1, "")

    # --- time and events

    def later(self, milliseconds: int = 1000) -> Self:
        """Let time pass; over an hour or more, agents and executors go on reporting what they did."""
        self.now_ms += milliseconds
        if self.goes_on_reporting and milliseconds >= HOUR_MS and self.state.directive is not None:
            self.tell(*self.reported_again())
        return self

    def reported_again(self) -> list[Event]:
        """The present readings, and each broker's last report once more."""
        events: list[Event] = [self.members_event(), *(self.cluster_event(n) for n in self.clusters)]
        for last in self.state.brokers:
            self.sequences[last.name] = max(self.sequences.get(last.name, 0), last.sequence)
            failed = last.failed_epoch >= 0
            epoch = last.failed_epoch if failed else last.acked_epoch
            more = {"writes": last.writes, "reads": last.reads, "client_epoch": last.client_epoch}
            events.append(self.report_event(last.name, epoch, failed=failed, **more))
        return events

    def tell(self, *events: Event) -> list[DecisionDraft]:
        """Let events arrive now; orders wait until `work`."""
        before = len(self.said)
        for event in events:
            self.history.append((self.now_ms, event))
            self.state, said = apply(self.state, (event,), self.limits, self.now_ms)
            if isinstance(event, SwitchCommand) and event.args.delete and self.state.switch is not None:
                self.deletes_early |= self.switch.stage is SwitchStage.CLEANUP
            self.said.extend(said)
            self.orders.extend(s for s in said if s.verdict in ORDERS)
        return self.said[before:]

    def key(self) -> str:
        self.keys += 1
        return f"k{self.keys}"

    @property
    def switch(self) -> Switch:
        assert self.state.switch is not None
        return self.state.switch

    @property
    def stage(self) -> SwitchStage:
        return self.state.stage("new", self.now_ms) if self.state.switch is None else self.state.switch.stage

    def is_at(self, stage: SwitchStage) -> bool:
        return self.stage is stage

    def awaits(self, action: SwitchAction) -> bool:
        return self.switch.awaiting is action

    def task(self, path: str) -> LedgerTask:
        return next(u for u in load_plan(self.switch) if path in u.paths)

    def stages(self) -> dict[str, LedgerStage]:
        return {u.paths[0]: u.stage for u in load_plan(self.switch)}

    # --- brokers

    def write(self, topic: str, broker: str) -> None:
        """Let a broker begin a new ledger of a topic."""
        cluster = self.clusters[self.brokers[broker]]
        ledger_id = cluster.allocate(topic, self.now_ms)
        if self.topics[topic] and ledger_id <= self.topics[topic][-1]:
            raise HarmError(f"INV-3: {topic} gets {ledger_id} after {self.topics[topic][-1]}")
        self.topics[topic].append(ledger_id)

    def broker_event(self, broker: str, *, failed: bool = False, epoch: int | None = None, **more: Any) -> Made:
        acked = self.acked.get(broker, 0) if epoch is None else epoch
        values: dict[str, Any] = {"writes": (self.brokers[broker],), "client_epoch": acked} | more
        return self.report_event(broker, acked, failed=failed, **values)

    def report_event(self, broker: str, epoch: int, *, failed: bool = False, **more: Any) -> Made:
        """A report of a broker's agent."""
        self.sequences[broker] = number = self.sequences.get(broker, 0) + 1
        reading = SwitchBroker(**OK, broker=broker, sequence=number, epoch=epoch, client_init_failed=failed, **more)
        return Made(reading, self.now_ms)

    def follow(self, broker: str) -> Made:
        """Let a broker follow the directive; returns its report."""
        directive = self.state.directive
        if directive is not None:
            self.brokers[broker] = directive.target
            self.acked[broker] = directive.epoch
        return self.broker_event(broker)

    # --- readings

    def cluster_event(self, name: str) -> ClusterSnapshot:
        one = self.clusters[name]
        return ClusterSnapshot(
            name=name, instance_id=one.instance, root="/ledgers", layout=one.layout, generator=one.generator,
            read_ms=self.now_ms, lower_given=one.lower_given, epoch=self.epoch_shown(),
            lower_counters=int(one.hob is not None) + len(one.lower),
        )  # fmt: skip

    def members_event(self, *brokers: str, **more: Any) -> Made:
        """A reading of the live brokers: these, or all."""
        values = {"brokers": brokers or tuple(self.brokers), "epoch": self.epoch_shown()} | more
        return Made(SwitchBrokers(**(OK | values)), self.now_ms)

    def registry_event(self, state: SwitchingState | None = None, **changes: Any) -> Made:
        """The registry as it is by a state; else by the present one."""
        state = state or self.state
        shown = {"clusters": state.entries, "bootstrap": state.bootstrap, "directive": state.directive}
        values = shown | {"committed_epoch": state.committed_epoch} | changes
        return Made(SwitchRegistry(**OK, **values), self.now_ms)

    def references(self) -> tuple[Reference, ...]:
        return tuple(Reference(r.kind, p, r.ledger_id, r.attribution) for p, r in sorted(self.refs.items()))

    def inventory_event(self, target: str | None = None) -> InventorySeen:
        target = target or (self.state.switch.target if self.state.switch else "new")
        ids = {r.ledger_id for r in self.refs.values()} & self.clusters[target].ledgers.keys()
        existing = {i: self.facts(target, i) for i in ids}
        manifest = SwitchInventory(
            **OK, inventory="i", target=target, moved_too=True, epoch=self.epoch_shown(),
            attempt=self.state.switch.attempt if self.state.switch else 1,
        )  # fmt: skip
        return InventorySeen(manifest, self.now_ms, self.references(), existing)

    def directive_shown(self) -> Directive | None:
        """The directive that ZooKeeper shows."""
        return self.state.directive

    def epoch_shown(self) -> int:
        """The epoch that each reading carries."""
        shown = self.directive_shown()
        return shown.epoch if shown else 0

    def facts(self, cluster: str, ledger_id: int) -> Ledger:
        held = self.clusters[cluster].ledgers[ledger_id]
        return Ledger(
            ledger_id=ledger_id,
            state=LedgerState.CLOSED if held.complete else LedgerState.OPEN,
            last_entry_id=0 if held.complete else -1,
            length_bytes=10,
            entries_digest=held.content if held.complete else "",
            created_ms=held.created_ms,
            provenance=self.provenance(cluster, ledger_id),
        )

    def provenance(self, cluster: str, ledger_id: int) -> str | None:
        """The provenance by the executor's journal: its own copies under their ids, all other ledgers are foreign."""
        held = self.clusters[cluster].ledgers[ledger_id]
        return held.source if held.by_headgate and ledger_id not in self.new_ids.values() else ""

    def lease_event(self, token: int = 1, valid_ms: int = LONG_LEASE) -> Made:
        lease = SwitchLease(**OK, token=token, holder=f"orchestrator-{token}", valid_ms=max(0, valid_ms))
        return Made(lease, self.now_ms + min(0, valid_ms))

    def prechecked_event(self, target: str = "new") -> Made:
        source = self.state.committed() or "old"
        one, other = (self.cluster_event(n) for n in (source, target))
        existing = TargetLedgers(
            ids=frozenset(self.clusters[target].ledgers), read_ms=self.now_ms, listed=True,
            facts={i: self.facts(target, i) for i in self.clusters[target].ledgers},
        )  # fmt: skip
        seen = PrecheckSnapshot(
            source=one, target=other, references=self.references(), references_complete=True,
            references_ms=self.now_ms, bootstrap="old", existing=existing,
            source_facts={i: self.facts(source, i) for i in self.clusters[source].ledgers},
            deleted=frozenset(self.state.deleted.get(self.clusters[target].instance, ())),
        )  # fmt: skip
        rules = self.limits.model_copy(update={"target_policy": self.policy})
        return Made(precheck(CLUSTER, seen, rules, self.now_ms), self.now_ms)

    # --- executors

    def work(self, *verdicts: SwitchVerdict, limit: int = 10_000) -> Self:
        """Carry out orders, of these kinds if given, and report them until no order is left."""
        for _ in range(limit):
            mine = [o for o in self.orders if not verdicts or o.verdict in verdicts]
            if not mine:
                return self
            self.orders.remove(mine[0])
            self.later(10)
            self.tell(*self.carry_out(mine[0]))
        return self

    def raise_ids(self) -> Self:
        """Create the HOB for which the switch waits, as an operator does, and read it."""
        found = re.search(r"(\S+) gives \d+ next.*advance to HOB-(\d+)", self.switch.blocked)
        assert found is not None, self.switch.blocked
        self.clusters[found[1]].advance(int(found[2]))
        self.later().tell(self.cluster_event(found[1]))
        return self

    def carry_out(self, order: DecisionDraft) -> Iterable[Event]:
        """Carry out an order; returns the executor's reports."""
        if order.verdict is SwitchVerdict.TAKE_INVENTORY:
            return [self.inventory_event(str(order.details["target"]))]
        if order.verdict is SwitchVerdict.RUN_PRECHECK:
            return [self.prechecked_event(str(order.details["target"]))]
        if order.verdict is SwitchVerdict.WRITE_STATUS:
            return [status(order.op, ok=True)]
        if order.task is None:
            return []
        names = (str(order.details["source"]), str(order.details["target"]))
        self.is_shared = bool(order.details.get("shared"))
        known = load_plan(self.switch).get(order.task.key)
        if known is None or known.op != order.op:
            return []  # an executor drops an order that a later one has replaced
        done = {
            SwitchVerdict.START_COPY: self._copy,
            SwitchVerdict.DELETE_OWN_COPY: self._delete_copy,
            SwitchVerdict.PROMOTE: self._promote,
            SwitchVerdict.REQUEST_ROLLOVER: self._roll_over,
            SwitchVerdict.REVERT: self._revert,
            SwitchVerdict.DELETE_OLD: self._delete_old,
        }[order.verdict](order.task, *names)
        return [done.model_copy(update={"ledger_id": order.task.ledger_id, "op": order.op})]

    def _copy(self, task: LedgerTask, source: str, target: str) -> SwitchLedger:
        old, new = self.clusters[source], self.clusters[target]
        if task.ledger_id not in old.ledgers:
            return answer(LedgerOutcome.SOURCE_UNREADABLE)
        facts = self.facts(source, task.ledger_id)
        if task.remap:
            return self._copy_anew(task, source, target)
        found = new.ledgers.get(task.ledger_id)
        if found is not None and (found.complete or not found.by_headgate or self.is_shared):
            return answer(LedgerOutcome.EXISTS, source=facts, target=self.facts(target, task.ledger_id))
        if task.ledger_id in new.deleted:
            raise HarmError(f"INV-6: {task.ledger_id} is created again in {target}")
        content = old.ledgers[task.ledger_id].content
        new.ledgers[task.ledger_id] = Held(content, self.now_ms, by_headgate=True, source=old.instance)
        return answer(LedgerOutcome.COPIED, source=facts, target=self.facts(target, task.ledger_id))

    def _copy_anew(self, task: LedgerTask, source: str, target: str) -> SwitchLedger:
        """Copy under the target's next id. A repeated order gets the same id again."""
        key, facts = (target, task.ledger_id), self.facts(source, task.ledger_id)
        if key in self.new_ids:
            found = self.facts(target, self.new_ids[key])
            found = msgspec.structs.replace(found, provenance=self.clusters[source].instance)
            return answer(LedgerOutcome.EXISTS, source=facts, target=found)
        content = self.clusters[source].ledgers[task.ledger_id].content
        made = self.new_ids[key] = self.clusters[target].allocate(content, self.now_ms)
        held = self.clusters[target].ledgers[made]
        held.by_headgate, held.source = True, self.clusters[source].instance
        return answer(LedgerOutcome.COPIED, source=facts, target=self.facts(target, made))

    def _delete_copy(self, task: LedgerTask, _source: str, target: str) -> SwitchLedger:
        made = self.new_ids.pop((target, task.ledger_id), -1) if task.remap else task.ledger_id
        held = self.clusters[target].ledgers.get(made)
        if held is not None and not held.by_headgate:
            return answer(LedgerOutcome.FAILED)  # the executor deletes only copies that are in its journal
        if held is not None and any((r.ledger_id, r.attribution) == (made, target) for r in self.refs.values()):
            raise HarmError(f"INV-7: ledger {made} of {target} is deleted while a reference names it")
        self.clusters[target].ledgers.pop(made, None)
        return answer(LedgerOutcome.COPY_DELETED)

    def _promote(self, task: LedgerTask, source: str, target: str) -> SwitchLedger:
        ref, made = self.refs[task.paths[0]], task.target_id if task.target_id is not None else task.ledger_id
        if (ref.attribution, ref.ledger_id) == (target, made):
            return answer(LedgerOutcome.PROMOTED)
        if ref.ledger_id != task.ledger_id:
            return answer(LedgerOutcome.ROLLED_OVER, new_id=ref.ledger_id, attribution=ref.attribution)
        held, old = self.clusters[target].ledgers.get(made), self.clusters[source].ledgers.get(task.ledger_id)
        if held is not None and held.by_headgate and old is not None and held.content != old.content:
            if self.is_shared:
                return answer(LedgerOutcome.ADVANCED)
            held = self.clusters[target].ledgers[made] = Held(
                old.content, self.now_ms, by_headgate=True, source=self.clusters[source].instance
            )
        if held is None or held.content != ref.content or not held.complete:
            raise HarmError(f"INV-1: {task.paths[0]} is promoted to a ledger of {target} that is not its own")
        ref.attribution, ref.ledger_id = target, made
        changed = ("attribution",) if made == task.ledger_id else ("attribution", "ledger_id")
        return answer(LedgerOutcome.PROMOTED, changed=changed)

    def _roll_over(self, task: LedgerTask, _source: str, target: str) -> SwitchLedger:
        ref = self.refs[task.paths[0]]
        ref.ledger_id, ref.attribution = self.clusters[target].allocate(ref.content, self.now_ms), target
        return answer(LedgerOutcome.ROLLED_OVER, new_id=ref.ledger_id, attribution=target)

    def _revert(self, task: LedgerTask, source: str, target: str) -> SwitchLedger:
        ref, held = self.refs[task.paths[0]], self.clusters[source].ledgers.get(task.ledger_id)
        if held is None:
            raise HarmError(f"{task.paths[0]} is taken back to ledger {task.ledger_id}, which {source} no longer has")
        if ref.attribution != target:
            return answer(LedgerOutcome.REVERTED)
        made = task.ledger_id if task.target_id is None else task.target_id
        if ref.ledger_id != made:
            return answer(LedgerOutcome.ROLLED_OVER, new_id=ref.ledger_id, attribution=target)
        ref.attribution, ref.ledger_id = source, task.ledger_id
        changed = ("attribution",) if made == task.ledger_id else ("attribution", "ledger_id")
        return answer(LedgerOutcome.REVERTED, changed=changed)

    def _delete_old(self, task: LedgerTask, source: str, _target: str) -> SwitchLedger:
        is_early = not self.deletes_early and self.now_ms < self.switch.live_ms + millis_of(self.limits.cleanup_after)
        if is_early and task.ledger_id in self.clusters[source].ledgers:  # a repeated order finds its work done
            raise HarmError(f"ledger {task.ledger_id} is deleted before its time")
        named = (r for r in self.refs.values() if (r.attribution or "old") == source)
        if any(r.ledger_id == task.ledger_id for r in named):
            raise HarmError(f"INV-7: ledger {task.ledger_id} of {source} is deleted while a reference names it")
        self.clusters[source].ledgers.pop(task.ledger_id, None)
        self.clusters[source].deleted.add(task.ledger_id)
        return answer(LedgerOutcome.DELETED)

    # --- the way

    def registered(self) -> Self:
        for name, one in self.clusters.items():
            given: Any = {"name": name, "uri": f"zk://{name}", "instance_id": one.instance, "root": "/ledgers"}
            self.tell(command("register", self.key(), **given), self.cluster_event(name))
        self.tell(self.lease_event(), self.members_event())
        self.orders.clear()
        return self.later()

    def checked(self, target: str = "new") -> Self:
        self.tell(command("precheck", self.key(), target=target))
        return self.work(SwitchVerdict.RUN_PRECHECK).later()

    def start_event(self, target: str = "new", **more: Any) -> SwitchCommand:
        check = self.state.check(target)
        return command("start", self.key(), target=target, **({"digest": check.digest if check else None} | more))

    def triggered(self, target: str = "new") -> Self:
        self.tell(self.start_event(target))
        return self.later()

    def acks(self) -> Self:
        """Let all brokers follow the directive, and let fresh readings of all parts arrive."""
        self.tell(self.members_event(), *(self.follow(b) for b in self.brokers))
        self.later()
        self.tell(*(self.cluster_event(n) for n in self.clusters))
        return self.later()

    def refresh(self) -> Self:
        """Let every broker report, and all readings arrive, as they do every few seconds."""
        self.tell(self.members_event(), *(self.broker_event(b) for b in self.brokers))
        self.tell(*(self.cluster_event(n) for n in self.clusters))
        return self.later()

    def to(self, stage: SwitchStage) -> Self:
        """Bring a switch to a stage without any trouble."""
        self.registered()
        if stage is SwitchStage.REGISTERED:
            return self
        self.checked()
        if stage is SwitchStage.PRECHECKED:
            return self
        self.triggered()
        if stage is SwitchStage.TRIGGERED:
            return self
        if stage is SwitchStage.REJECTED:
            self.tell(self.cluster_event("new"), self.broker_event("b1", failed=True, epoch=self.switch.epoch))
            return self.raise_ids().later()
        self.acks()
        if stage is SwitchStage.LIVE_DUAL_READ:
            return self
        self.work(SwitchVerdict.TAKE_INVENTORY)
        if stage is SwitchStage.BUILD:
            return self
        if stage is SwitchStage.DONE_WITH_FAILURES:
            self.lost = self.clusters["old"].ledgers.pop(self.refs["/s1"].ledger_id)
        self.work(SwitchVerdict.START_COPY)
        if stage is SwitchStage.PROMOTE:
            return self
        return self._finish(stage)

    def _finish(self, stage: SwitchStage) -> Self:
        self.work()
        if stage is SwitchStage.HOLD:
            return self
        if stage in UNDONE | {SwitchStage.ROLLBACK}:
            self.tell(command("rollback", self.key()))
            if stage is SwitchStage.ROLLED_BACK_WITH_FAILURES:
                for _ in range(self.limits.retries):
                    tell_of(self, "/s1", LedgerOutcome.FAILED)
                return self.work()
            if stage is SwitchStage.ABORTED:
                self.tell(command("end", self.key()))
            return self.work() if stage is SwitchStage.ROLLED_BACK else self
        self.later(millis_of(self.limits.cleanup_after)).refresh()
        self.tell(command("cleanup", self.key()))
        if stage is SwitchStage.CLEANUP:
            return self
        return self.work()

    def clean_up(self) -> Self:
        """Clean up once its time has come."""
        self.later(15 * DAY_MS).tell(command("cleanup", self.key()))
        return self.work()

    def drive_on(self) -> Self:
        self.tell(self.start_event())
        return self.work()

    def close_event(self, name: str = "old") -> SwitchCommand:
        return command("close-client", self.key(), name=name)


def built_once(build: Callable[[SwitchStage], World]) -> Callable[[SwitchStage], World]:
    """Cache the pickled world of each stage; each caller gets its own copy."""
    kept = cache(lambda stage: pickle.dumps(build(stage)))

    def world_at(stage: SwitchStage) -> World:
        world: World = pickle.loads(kept(stage))
        return world

    return world_at


@built_once
def well_at(stage: SwitchStage) -> World:
    """A world at a stage, without any trouble before."""
    return World().to(stage)


def codes(said: list[DecisionDraft]) -> list[RejectCode | None]:
    return [s.code for s in said if s.verdict is SwitchVerdict.REJECT]


def verdicts(said: list[DecisionDraft]) -> list[SwitchVerdict]:
    return [s.verdict for s in said]


def tell_of(world: World, path: str, outcome: LedgerOutcome, **more: Any) -> list[DecisionDraft]:
    """Let the executor's answer about the ledger of one reference arrive."""
    task = world.task(path)
    world.orders = [o for o in world.orders if o.task is None or o.task.ledger_id != task.ledger_id]
    return world.tell(answer(outcome, task.ledger_id, task.op, **more))


def apply(
    state: SwitchingState, events: Iterable[Event], limits: SwitchingSettings, now_ms: int
) -> tuple[SwitchingState, tuple[DecisionDraft, ...]]:
    """The state after some events, and the decisions of the machine alone."""
    transition = Transition(state, limits, now_ms)
    said = reconcile(transition, [each for event in events for each in observations_of(event, now_ms)])
    return transition.packed(), said


def stored(state: SwitchingState) -> SwitchingState:
    """The state after encoding and decoding."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=SwitchingState)
