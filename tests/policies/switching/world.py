"""A model of two BookKeeper clusters, brokers, references and executors, which knows when harm is done.

The machine sees it through observations only; `HarmError` is what must never happen, judged from the world itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from policies.switching.events import (
    BrokerSeen,
    Cleanup,
    CloseClient,
    ClusterSeen,
    Event,
    InventorySeen,
    LeaseSeen,
    LedgerDone,
    MembersSeen,
    Outcome,
    Precheck,
    Prechecked,
    Register,
    Rollback,
    Start,
    StatusDone,
)
from policies.switching.id_generators import Generator
from policies.switching.ledger_paths import Layout
from policies.switching.ledgers import Ledger, LedgerState
from policies.switching.limits import DAY_MS, Limits
from policies.switching.machine import apply
from policies.switching.orders import ORDERS, Said, Verdict
from policies.switching.precheck import Cluster, Rules, Snapshot, TargetLedgers, TargetPolicy, precheck
from policies.switching.references import Kind, Reference
from policies.switching.state import Action, Checked, Lease, LedgerStage, Stage, Switch, SwitchingState, Unit

START_MS = 1_800_000_000_000
LONG_LEASE = 400 * DAY_MS


class HarmError(AssertionError):
    """Data was lost, overwritten, mixed up or put out of order."""


@dataclass
class Held:
    """A ledger in a cluster: what is in it, and whether headgate put it there."""

    content: str
    created_ms: int
    complete: bool = True
    by_headgate: bool = False


@dataclass
class Bookies:
    """A BookKeeper cluster."""

    name: str
    instance: str
    hob: int | None = None
    created: int = 0
    layout: Layout | None = Layout.HIERARCHICAL
    ledgers: dict[int, Held] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)

    @property
    def generator(self) -> Generator:
        return Generator(self.hob, 2 * self.created, 0)

    def allocate(self, content: str, now_ms: int) -> int:
        """What a broker does for a topic or cursor."""
        ledger_id = self.generator.next_id
        self.created += 1
        if ledger_id in self.ledgers:
            raise HarmError(f"INV-2: {self.name} gave {ledger_id}, which exists")
        if ledger_id in self.deleted:
            raise HarmError(f"INV-6: {self.name} gave {ledger_id}, which was deleted")
        self.ledgers[ledger_id] = Held(content, now_ms)
        return ledger_id


@dataclass
class Ref:
    """A znode that names a ledger."""

    kind: Kind
    ledger_id: int
    content: str
    attribution: str | None = None


class World:
    """Everything there is, and the machine that watches it."""

    def __init__(self, limits: Limits | None = None, policy: TargetPolicy = TargetPolicy.SHARED) -> None:
        self.limits = limits or Limits(copy_concurrency=2, max_deletions=2, retries=3)
        self.policy = policy
        self.now_ms = START_MS
        self.clusters = {"old": Bookies("old", "id-of-old"), "new": Bookies("new", "id-of-new", hob=1)}
        self.refs: dict[str, Ref] = {}
        self.topics: dict[str, list[int]] = {"t1": [], "t2": []}
        self.brokers: dict[str, str] = {"b1": "old", "b2": "old"}
        self.acked: dict[str, int] = {}
        self.sequences: dict[str, int] = {}
        self.state = SwitchingState()
        self.said: list[Said] = []
        self.orders: list[Said] = []
        self.history: list[tuple[int, Event]] = []
        self.keys = 0
        self.lost: Held | None = None
        self.new_ids: dict[tuple[str, int], int] = {}
        """What the executors' journal knows: by target and id in the source, the new id of a copy."""
        old = self.clusters["old"]
        for topic in self.topics:
            self.write(topic, "b1")
        for path, kind in (("/c1", Kind.CURSOR), ("/s1", Kind.SCHEMA), ("/c2", Kind.CURSOR)):
            self.refs[path] = Ref(kind, old.allocate(path, self.now_ms), path)
        self.refs["/none"] = Ref(Kind.CURSOR, -1, "")

    # --- time and events

    def later(self, milliseconds: int = 1000) -> "World":
        self.now_ms += milliseconds
        return self

    def tell(self, *events: Event) -> list[Said]:
        """Let events happen now; orders wait until `work`."""
        before = len(self.said)
        for event in events:
            self.history.append((self.now_ms, event))
            self.state, said = apply(self.state, (event,), self.limits, self.now_ms)
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
    def stage(self) -> Stage:
        return self.state.stage("new", self.now_ms) if self.state.switch is None else self.state.switch.stage

    def is_at(self, stage: Stage) -> bool:
        return self.stage is stage

    def awaits(self, action: Action) -> bool:
        return self.switch.awaiting is action

    def unit(self, path: str) -> Unit:
        return next(u for u in self.switch.units if path in u.paths)

    def stages(self) -> dict[str, LedgerStage]:
        return {u.paths[0]: u.stage for u in self.switch.units}

    # --- brokers

    def write(self, topic: str, broker: str) -> None:
        """A broker begins a new ledger of a topic."""
        cluster = self.clusters[self.brokers[broker]]
        ledger_id = cluster.allocate(topic, self.now_ms)
        if self.topics[topic] and ledger_id <= self.topics[topic][-1]:
            raise HarmError(f"INV-3: {topic} gets {ledger_id} after {self.topics[topic][-1]}")
        self.topics[topic].append(ledger_id)

    def broker_event(self, broker: str, *, failed: bool = False, epoch: int | None = None, **more: Any) -> BrokerSeen:
        self.sequences[broker] = self.sequences.get(broker, 0) + 1
        acked = self.acked.get(broker, 0) if epoch is None else epoch
        values = {"writes": (self.brokers[broker],), "reads": ()} | more
        return BrokerSeen(broker, self.sequences[broker], acked, failed, at_ms=self.now_ms, **values)

    def follow(self, broker: str) -> BrokerSeen:
        """A broker reads the directive, follows it, and says so."""
        directive = self.state.directive
        if directive is not None:
            self.brokers[broker] = directive.target
            self.acked[broker] = directive.epoch
        return self.broker_event(broker)

    # --- what is read

    def cluster_event(self, name: str) -> ClusterSeen:
        one = self.clusters[name]
        return ClusterSeen(
            Cluster(
                name=name, instance_id=one.instance, root="/ledgers", layout=one.layout, generator=one.generator,
                read_ms=self.now_ms,
            )
        )  # fmt: skip

    def members_event(self) -> MembersSeen:
        return MembersSeen(tuple(self.brokers), self.now_ms)

    def references(self) -> tuple[Reference, ...]:
        return tuple(Reference(r.kind, p, r.ledger_id, r.attribution) for p, r in sorted(self.refs.items()))

    def inventory_event(self, target: str | None = None) -> InventorySeen:
        target = target or (self.state.switch.target if self.state.switch else "new")
        ids = {r.ledger_id for r in self.refs.values()} & self.clusters[target].ledgers.keys()
        return InventorySeen(self.references(), self.now_ms, target, {i: self.facts(target, i) for i in ids})

    def facts(self, cluster: str, ledger_id: int) -> Ledger:
        held = self.clusters[cluster].ledgers[ledger_id]
        return Ledger(
            ledger_id=ledger_id,
            state=LedgerState.CLOSED if held.complete else LedgerState.OPEN,
            last_entry_id=0 if held.complete else -1,
            length_bytes=10,
            entries_digest=held.content if held.complete else "",
            created_ms=held.created_ms,
        )

    def lease_event(self, token: int = 1, valid_ms: int = LONG_LEASE) -> LeaseSeen:
        return LeaseSeen(Lease(token, f"orchestrator-{token}", self.now_ms + valid_ms))

    def prechecked_event(self, target: str = "new") -> Prechecked:
        source = self.state.committed() or "old"
        one, other = (self.cluster_event(n).cluster for n in (source, target))
        existing = TargetLedgers(
            ids=frozenset(self.clusters[target].ledgers), read_ms=self.now_ms, listed=True,
            facts={i: self.facts(target, i) for i in self.clusters[target].ledgers},
        )  # fmt: skip
        gone = next((d.ids for d in self.state.deleted if d.instance == other.instance_id), ())
        seen = Snapshot(
            source=one, target=other, references=self.references(), references_complete=True,
            references_ms=self.now_ms, bootstrap="old", existing=existing,
            source_facts={i: self.facts(source, i) for i in self.clusters[source].ledgers},
            journal={i.ledger_id: i for i in self.state.journal if i.target == other.instance_id and not i.remap},
            deleted=frozenset(gone),
        )  # fmt: skip
        rules = Rules(policy=self.policy, validity_ms=600_000, remapped=self.limits.remapped)
        report = precheck(seen, rules, self.now_ms)
        return Prechecked(
            Checked(
                report.source, report.target, report.ready, report.digest, report.reasons, report.checked_ms,
                report.expires_ms, report.greatest_id,
            )
        )  # fmt: skip

    # --- executors

    def work(self, *verdicts: Verdict, limit: int = 10_000) -> "World":
        """Carry out what is ordered (of these kinds), and report it, until nothing more is."""
        for _ in range(limit):
            mine = [o for o in self.orders if not verdicts or o.verdict in verdicts]
            if not mine:
                return self
            self.orders.remove(mine[0])
            self.later(10)
            self.tell(*self.carry_out(mine[0]))
        return self

    def carry_out(self, order: Said) -> Iterable[Event]:
        """What an executor does, and what it then says."""
        if order.verdict is Verdict.TAKE_INVENTORY:
            return [self.inventory_event(str(order.details["target"]))]
        if order.verdict is Verdict.RUN_PRECHECK:
            return [self.prechecked_event(str(order.details["target"]))]
        if order.verdict is Verdict.WRITE_STATUS:
            return [StatusDone(self.switch.awaiting, order.op, ok=True)]
        if order.unit is None:
            return []
        names = (str(order.details["source"]), str(order.details["target"]))
        known = next((u for u in self.switch.units if u.ledger_id == order.unit.ledger_id), None)
        if known is None or known.op != order.op:
            return []  # an executor drops an order that a later one has replaced
        done = {
            Verdict.START_COPY: self._copy,
            Verdict.DELETE_OWN_COPY: self._delete_copy,
            Verdict.PROMOTE: self._promote,
            Verdict.REQUEST_ROLLOVER: self._roll_over,
            Verdict.REVERT: self._revert,
            Verdict.DELETE_OLD: self._delete_old,
        }[order.verdict](order.unit, *names)
        return [replace(done, ledger_id=order.unit.ledger_id, op=order.op)]

    def _copy(self, unit: Unit, source: str, target: str) -> LedgerDone:
        old, new = self.clusters[source], self.clusters[target]
        if unit.ledger_id not in old.ledgers:
            return answer(Outcome.SOURCE_UNREADABLE)
        facts = self.facts(source, unit.ledger_id)
        if unit.remap:
            return self._copy_anew(unit, source, target)
        if unit.ledger_id in new.ledgers:
            return answer(Outcome.EXISTS, source=facts, target=self.facts(target, unit.ledger_id))
        if unit.ledger_id in new.deleted:
            raise HarmError(f"INV-6: {unit.ledger_id} is created again in {target}")
        content = old.ledgers[unit.ledger_id].content
        new.ledgers[unit.ledger_id] = Held(content, self.now_ms, by_headgate=True)
        return answer(Outcome.COPIED, source=facts, target=self.facts(target, unit.ledger_id))

    def _copy_anew(self, unit: Unit, source: str, target: str) -> LedgerDone:
        """Under the target's next id; asked again, under the id that was given once."""
        key, facts = (target, unit.ledger_id), self.facts(source, unit.ledger_id)
        if key in self.new_ids:
            return answer(Outcome.EXISTS, source=facts, target=self.facts(target, self.new_ids[key]))
        content = self.clusters[source].ledgers[unit.ledger_id].content
        made = self.new_ids[key] = self.clusters[target].allocate(content, self.now_ms)
        self.clusters[target].ledgers[made].by_headgate = True
        return answer(Outcome.COPIED, source=facts, target=self.facts(target, made))

    def _delete_copy(self, unit: Unit, _source: str, target: str) -> LedgerDone:
        made = self.new_ids.pop((target, unit.ledger_id), -1) if unit.remap else unit.ledger_id
        held = self.clusters[target].ledgers.get(made)
        if held is not None and not held.by_headgate:
            raise HarmError(f"INV-7: the foreign ledger {made} of {target} is deleted")
        if held is not None and any((r.ledger_id, r.attribution) == (made, target) for r in self.refs.values()):
            raise HarmError(f"INV-7: ledger {made} of {target} is deleted while a reference names it")
        self.clusters[target].ledgers.pop(made, None)
        return answer(Outcome.COPY_DELETED)

    def _promote(self, unit: Unit, _source: str, target: str) -> LedgerDone:
        ref, made = self.refs[unit.paths[0]], unit.target_id if unit.target_id is not None else unit.ledger_id
        if (ref.attribution, ref.ledger_id) == (target, made):
            return answer(Outcome.PROMOTED)
        if ref.attribution == target and ref.ledger_id != unit.ledger_id:
            return answer(Outcome.ROLLED_OVER, new_id=ref.ledger_id, attribution=ref.attribution)
        held = self.clusters[target].ledgers.get(made)
        if held is None or held.content != ref.content or not held.complete:
            raise HarmError(f"INV-1: {unit.paths[0]} is promoted to a ledger of {target} that is not its own")
        ref.attribution, ref.ledger_id = target, made
        return answer(Outcome.PROMOTED, changed=("attribution",) + (("ledger_id",) if made != unit.ledger_id else ()))

    def _roll_over(self, unit: Unit, _source: str, target: str) -> LedgerDone:
        ref = self.refs[unit.paths[0]]
        ref.ledger_id, ref.attribution = self.clusters[target].allocate(ref.content, self.now_ms), target
        return answer(Outcome.ROLLED_OVER, new_id=ref.ledger_id, attribution=target)

    def _revert(self, unit: Unit, source: str, target: str) -> LedgerDone:
        ref, held = self.refs[unit.paths[0]], self.clusters[source].ledgers.get(unit.ledger_id)
        if held is None:
            raise HarmError(f"{unit.paths[0]} is taken back to ledger {unit.ledger_id}, which {source} no longer has")
        if ref.attribution != target:
            return answer(Outcome.REVERTED)
        made = unit.ledger_id if unit.target_id is None else unit.target_id
        if ref.ledger_id != made:
            return answer(Outcome.ROLLED_OVER, new_id=ref.ledger_id, attribution=target)
        ref.attribution, ref.ledger_id = source, unit.ledger_id
        return answer(Outcome.REVERTED, changed=("attribution", *(("ledger_id",) if made != unit.ledger_id else ())))

    def _delete_old(self, unit: Unit, source: str, _target: str) -> LedgerDone:
        if self.now_ms < self.switch.live_ms + self.limits.cleanup_after_ms:
            raise HarmError(f"ledger {unit.ledger_id} is deleted before its time")
        named = (r for r in self.refs.values() if (r.attribution or "old") == source)
        if any(r.ledger_id == unit.ledger_id for r in named):
            raise HarmError(f"INV-7: ledger {unit.ledger_id} of {source} is deleted while a reference names it")
        self.clusters[source].ledgers.pop(unit.ledger_id, None)
        self.clusters[source].deleted.add(unit.ledger_id)
        return answer(Outcome.DELETED)

    # --- the way

    def registered(self) -> "World":
        for name, one in self.clusters.items():
            self.tell(
                Register(key=self.key(), name=name, uri=f"zk://{name}", instance_id=one.instance, root="/ledgers"),
                self.cluster_event(name),
            )
        self.tell(self.lease_event(), self.members_event())
        self.orders.clear()
        return self.later()

    def checked(self, target: str = "new") -> "World":
        self.tell(Precheck(key=self.key(), target=target))
        return self.work(Verdict.RUN_PRECHECK).later()

    def start_event(self, target: str = "new", **more: Any) -> Start:
        check = self.state.check(target)
        return Start(key=self.key(), target=target, **({"digest": check.digest if check else None} | more))

    def triggered(self, target: str = "new") -> "World":
        self.tell(self.start_event(target))
        return self.later()

    def acks(self) -> "World":
        """All brokers follow, and everything is read afresh."""
        self.tell(self.members_event(), *(self.follow(b) for b in self.brokers))
        self.later()
        self.tell(*(self.cluster_event(n) for n in self.clusters))
        return self.later()

    def to(self, stage: Stage) -> "World":
        """Everything well until a stage is reached."""
        self.registered()
        if stage is Stage.REGISTERED:
            return self
        self.checked()
        if stage is Stage.PRECHECKED:
            return self
        self.triggered()
        if stage is Stage.TRIGGERED:
            return self
        if stage is Stage.REJECTED:
            self.tell(self.broker_event("b1", failed=True, epoch=self.switch.epoch))
            return self.later()
        self.acks()
        if stage is Stage.LIVE_DUAL_READ:
            return self
        self.work(Verdict.TAKE_INVENTORY)
        if stage is Stage.BUILD:
            return self
        if stage is Stage.DONE_WITH_FAILURES:
            self.lost = self.clusters["old"].ledgers.pop(self.refs["/s1"].ledger_id)
        self.work(Verdict.START_COPY)
        if stage is Stage.PROMOTE:
            return self
        return self._finish(stage)

    def _finish(self, stage: Stage) -> "World":
        self.work()
        if stage is Stage.HOLD:
            return self
        if stage in (Stage.ROLLBACK, Stage.ROLLED_BACK):
            self.tell(Rollback(key=self.key()))
            return self if stage is Stage.ROLLBACK else self.work()
        self.later(self.limits.cleanup_after_ms)
        self.tell(Cleanup(key=self.key()))
        if stage is Stage.CLEANUP:
            return self
        return self.work()

    def close_event(self, name: str = "old") -> CloseClient:
        return CloseClient(key=self.key(), name=name)


def answer(outcome: Outcome, **more: Any) -> LedgerDone:
    return LedgerDone(ledger_id=-1, op=-1, outcome=outcome, **more)


def stored(state: SwitchingState) -> SwitchingState:
    """The state after a trip through the store."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=SwitchingState)
