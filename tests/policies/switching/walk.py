"""Seeded walks over a fleet in which nothing comes at its time: what no history of switches may ever do.

Brokers follow directives long before they say so, or never say so; they join, leave, and write where they should not.
There are three clusters, people who command anything at any time and follow every remedy they are told, and somebody
else who writes directives too. A walk ends when all behave again: then a person must come to an end of the switch.

    python -m tests.policies.switching.walk 300 80      # so many walks, of so many steps each
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from policies.switching import events as every_event
from policies.switching.decisions import ORDERS, SwitchVerdict
from policies.switching.events import Cleanup, LedgerResult, RegistrySeen, Rollback
from policies.switching.id_generators import MAX_HOB
from policies.switching.judge.changes import DecisionDraft
from policies.switching.readings import LedgerOutcome
from policies.switching.references import LedgerKind
from policies.switching.settings import DAY_MS, SwitchLimits
from policies.switching.state import ENDED, Directive, RegistryEntry, SwitchStage
from tests.policies.switching.world import Bookies, HarmError, Ref, World, stored

S = SwitchStage
_REMEDY = re.compile(r"(\S+) (?:gives \d+ next|began at \d+)[^;]*?: advance to HOB-(\d+)")
_WATCHED = (S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP)
_READS_ONLY = (SwitchVerdict.RUN_PRECHECK, SwitchVerdict.TAKE_INVENTORY)


@dataclass
class Broker:
    """What one does, whatever it says."""

    writes_to: str
    epoch: int = 0


class Fleet(World):
    """A world of three clusters, whose brokers are on their own."""

    def __init__(self) -> None:
        super().__init__(SwitchLimits(copy_concurrency=2, max_deletions=2, retries=3))
        self.clusters["third"] = Bookies("third", "id-of-third", hob=1)
        self.refs["/s2"] = Ref(LedgerKind.SCHEMA, self.refs["/c1"].ledger_id, "/c1")  # one ledger, named by both kinds
        self.fleet = {name: Broker("old") for name in self.brokers}
        self.joined = len(self.fleet)
        self.foreign: Directive | None = None
        """A directive that somebody else wrote."""
        self.contested_heard = False
        self.astray: list[tuple[str, str, int, bool]] = []
        """Ids that topics got of brokers that did not follow: nobody can foresee those."""
        self.known_writes = {"old"}
        """Clusters that brokers said they wrote to."""
        self.directed_to = {"old"}
        self.remedies: list[tuple[str, int]] = []
        self.just_remedied = False
        self.listed: tuple[int, set[str]] = (0, set())
        """When references were last listed in full, and which of them named the source."""
        self.registered()
        self.read()

    def later(self, milliseconds: int = 1000) -> "Fleet":
        super().later(milliseconds)
        return self

    # --- brokers

    def in_force(self) -> Directive | None:
        ours = self.state.directive
        return self.foreign if self.foreign and self.foreign.epoch > (ours.epoch if ours else 0) else ours

    def where(self) -> str:
        """Where a broker that follows writes."""
        directive = self.in_force()
        if directive is not None and directive.epoch > self.state.committed_epoch:
            return directive.target
        return self.state.committed() or "old"

    def adopt(self, name: str) -> None:
        directive = self.in_force()
        self.fleet[name] = Broker(self.where(), directive.epoch if directive else 0)

    def write_anywhere(self, topic: str, name: str) -> None:
        """One that does not follow harms itself; whoever follows must never get a lower id."""
        one = self.fleet[name]
        follows = one == Broker(self.where(), self.in_force().epoch if self.in_force() else 0)  # type: ignore[union-attr]
        ledger_id = self.clusters[one.writes_to].allocate(topic, self.now_ms)
        if not follows or self.foreign is not None:
            self.astray.append((topic, one.writes_to, ledger_id, one.writes_to in self.directed_to))
            return
        past = self.topics[topic]
        if past and ledger_id <= max(past):
            raise HarmError(f"ORDER: {topic} gets {ledger_id} of {one.writes_to} after {max(past)}")
        past.append(ledger_id)

    def _count_what_is_known(self) -> None:
        """A directive must heed what brokers did out of line, where it was read that they may have."""
        for entry in list(self.astray):
            topic, cluster, ledger_id, directed = entry
            seen = self.state.cluster(cluster)
            known = seen is not None and seen.generator is not None and seen.generator.next_id > ledger_id
            if (directed or cluster in self.known_writes) and known:
                self.topics[topic].append(ledger_id)
                self.astray.remove(entry)

    def report(self, name: str, **more: Any) -> None:
        one = self.fleet[name]
        self.brokers[name] = one.writes_to
        self.known_writes.add(one.writes_to)
        self.tell(self.broker_event(name, epoch=one.epoch, writes=(one.writes_to,), **more))

    def members_event(self) -> Any:
        return every_event.MembersSeen(tuple(self.fleet) if hasattr(self, "fleet") else ("b1", "b2"), self.now_ms)

    # --- what is read

    def read(self) -> None:
        self.later()
        self.tell(self.registry_event(), *(self.cluster_event(n) for n in self.clusters), self.members_event())
        self.later()

    def list_references(self) -> None:
        switch = self.state.switch
        if switch is not None:
            self.tell(self.later().inventory_event(switch.target))

    def inventory_event(self, target: str | None = None) -> Any:
        switch = self.state.switch
        source = switch.source if switch else "old"
        naming = {p for p, r in self.refs.items() if r.ledger_id >= 0 and (r.attribution or "old") == source}
        self.listed = (self.now_ms, naming)
        return super().inventory_event(target)

    def registry_event(self, *, two_active: bool = False) -> RegistrySeen:
        entries = tuple(
            RegistryEntry(e.name, e.uri, e.instance_id, e.root, type(e.status)("active") if two_active else e.status, 3)
            for e in self.state.entries
        )
        return RegistrySeen(entries, self.state.bootstrap, self.in_force(), self.state.committed_epoch, self.now_ms)

    # --- what is said

    def tell(self, *events: Any) -> list[DecisionDraft]:
        said: list[DecisionDraft] = []
        for event in events:
            stage, epoch = self.state.switch.stage if self.state.switch else S.NONE, self.state.epoch
            now = super().tell(event)
            said += now
            if hasattr(self, "known_writes") and self.state.epoch > epoch and self.state.directive is not None:
                self._count_what_is_known()
                self.directed_to.add(self.state.directive.target)
            if hasattr(self, "foreign") and self.foreign and self.state.epoch > self.foreign.epoch:
                self.directed_to.add(self.foreign.target)
                self.foreign, self.contested_heard = None, False
            self._judge(stage, now, event)
        return said

    def _judge(self, before: SwitchStage, said: list[DecisionDraft], event: Any) -> None:
        if not hasattr(self, "fleet"):
            return
        for one in said:
            self._heed(one)
        orders = [o for o in said if o.verdict in ORDERS and o.verdict not in _READS_ONLY]
        if self.contested_heard and orders and type(event).__name__ != "Resume":
            raise HarmError(f"CONTESTED: {orders[0].verdict.value} although somebody else directs")
        if any(o.verdict is SwitchVerdict.DELETE_OLD for o in orders) and (why := self._astray()):
            raise HarmError(f"CLEAN-UP: {why}")
        after = self.state.switch.stage if self.state.switch else S.NONE
        if after is not before:
            self._must_be_true(after)

    def _heed(self, one: DecisionDraft) -> None:
        """Keep a remedy in mind; one that was followed must not have halted the switch."""
        for found in _REMEDY.finditer(one.sentence):
            name, hob = found[1], int(found[2])
            if hob > MAX_HOB:
                raise HarmError(f"REMEDY: {one.sentence}")
            if name in self.clusters:
                self.remedies.append((name, hob))
        if one.verdict is SwitchVerdict.HALT and self.just_remedied:
            raise HarmError(f"REMEDY HALTS: {one.sentence}")

    def _must_be_true(self, stage: SwitchStage) -> None:
        if stage is S.DONE and self.listed[1]:
            raise HarmError(f"DONE: {sorted(self.listed[1])} name {self.switch.source}")
        asked_back = stage is S.ROLLED_BACK and not self.switch.attribution_only
        if (stage is S.DONE or asked_back) and (why := self._astray()):
            raise HarmError(f"{stage.value.upper()}: {why}")

    def _astray(self) -> str:
        """By what it was told: a live broker that does not follow the directive."""
        directive, members = self.state.directive, self.state.members
        reports = {b.name: b for b in self.state.brokers}
        for name in members.brokers if members and directive else ():
            said = reports.get(name)
            if said is None or said.acked_epoch != directive.epoch:  # type: ignore[union-attr]
                return f"{name} does not follow"
            if set(said.writes) - {directive.target}:  # type: ignore[union-attr]
                return f"{name} writes to {said.writes}"
        return ""


# --- the steps


def _start(fleet: Fleet, draw: Random) -> None:
    target = draw.choice(("new", "new", "third", "old"))
    if draw.random() < 0.8:
        fleet.read()
        fleet.tell(fleet.later().prechecked_event(target))
    fleet.tell(fleet.start_event(target))


def _command(name: str) -> Callable[[Fleet, Random], None]:
    def step(fleet: Fleet, _draw: Random) -> None:
        if (known := getattr(every_event, name, None)) is not None:
            fleet.tell(known(key=fleet.key()))

    return step


def _roll_back(fleet: Fleet, draw: Random) -> None:
    fleet.read()
    fleet.tell(Rollback(key=fleet.key(), attribution_only=draw.random() < 0.5))


def _abort(fleet: Fleet, draw: Random) -> None:
    fleet.read()
    _command("Abort")(fleet, draw)


def _remedy(fleet: Fleet, _draw: Random) -> None:
    if fleet.remedies:
        name, hob = fleet.remedies.pop()
        fleet.read()
        one = fleet.clusters[name]
        if hob > (one.hob or 0):
            one.hob, one.created = hob, 0
        fleet.just_remedied = True
        fleet.read()
        fleet.just_remedied = False


def _cleans_up(fleet: Fleet, draw: Random) -> None:
    if fleet.state.switch is not None and fleet.stage is S.HOLD and draw.random() < 0.5:
        fleet.later(16 * DAY_MS)
        _dies(fleet, draw)
        _luck(fleet, draw)
    fleet.tell(Cleanup(key=fleet.key()))


def _read(fleet: Fleet, _draw: Random) -> None:
    fleet.read()


def _lists(fleet: Fleet, _draw: Random) -> None:
    fleet.list_references()


def _drives_on(fleet: Fleet, _draw: Random) -> None:
    if fleet.state.switch is not None:
        fleet.tell(fleet.start_event(fleet.switch.target))


def _luck(fleet: Fleet, _draw: Random) -> None:
    """A stretch of it, so that walks get far."""
    for name in fleet.fleet:
        fleet.later().adopt(name)
        fleet.report(name)
    fleet.read()
    fleet.work(limit=100)


def _time(fleet: Fleet, draw: Random) -> None:
    stage = fleet.state.switch.stage if fleet.state.switch else S.NONE
    long = (DAY_MS, 15 * DAY_MS) if stage in (S.HOLD, S.CLEANUP, S.ROLLED_BACK) else (60_000,)
    fleet.later(draw.choice((1, 1000, *long))).tell(fleet.members_event())


def _any_broker(fleet: Fleet, draw: Random) -> str:
    return draw.choice(sorted(fleet.fleet))


def _adopts(fleet: Fleet, draw: Random) -> None:
    fleet.later().adopt(_any_broker(fleet, draw))


def _reports(fleet: Fleet, draw: Random) -> None:
    fleet.later().report(_any_broker(fleet, draw))


def _follows(fleet: Fleet, draw: Random) -> None:
    name = _any_broker(fleet, draw)
    fleet.later().adopt(name)
    fleet.report(name)


def _goes_back(fleet: Fleet, draw: Random) -> None:
    name = _any_broker(fleet, draw)
    fleet.fleet[name] = Broker(draw.choice(sorted(fleet.clusters)), max(0, fleet.fleet[name].epoch - 1))
    if draw.random() < 0.7:
        fleet.later().report(name)


def _joins(fleet: Fleet, draw: Random) -> None:
    if len(fleet.fleet) < 4:
        fleet.joined += 1
        name = f"b{fleet.joined}"
        fleet.fleet[name] = Broker("old")
        if draw.random() < 0.7:
            fleet.adopt(name)
        fleet.later().tell(fleet.members_event())
        if draw.random() < 0.6:
            fleet.report(name)


def _leaves(fleet: Fleet, draw: Random) -> None:
    if len(fleet.fleet) > 1:
        name = _any_broker(fleet, draw)
        del fleet.fleet[name]
        fleet.brokers.pop(name, None)
        fleet.later().tell(fleet.members_event())


def _writes(fleet: Fleet, draw: Random) -> None:
    fleet.write_anywhere(draw.choice(("t1", "t2")), _any_broker(fleet, draw))


def _client_fails(fleet: Fleet, draw: Random) -> None:
    if draw.random() < 0.3:
        fleet.read()
        name = _any_broker(fleet, draw)
        fleet.brokers[name] = fleet.fleet[name].writes_to
        fleet.tell(fleet.broker_event(name, failed=True, epoch=fleet.state.epoch))


def _new_reference(fleet: Fleet, draw: Random) -> None:
    """A subscription is made, where its broker writes; one that does not follow makes it in the old cluster."""
    one, path = fleet.fleet[_any_broker(fleet, draw)], f"/n{len(fleet.refs)}"
    if len(fleet.refs) < 8 and draw.random() < 0.3:
        made = fleet.clusters[one.writes_to].allocate(path, fleet.now_ms)
        fleet.refs[path] = Ref(LedgerKind.CURSOR, made, path, one.writes_to)


def _works(fleet: Fleet, draw: Random) -> None:
    if fleet.orders:
        order = fleet.orders.pop(draw.randrange(len(fleet.orders)))
        fleet.later(10).tell(*fleet.carry_out(order))


def _dies(fleet: Fleet, _draw: Random) -> None:
    fleet.orders.clear()
    lease = fleet.state.lease
    fleet.later().tell(fleet.lease_event((lease.token if lease else 0) + 1))


def _fails(fleet: Fleet, draw: Random) -> None:
    if fleet.orders and (order := fleet.orders[0]).task is not None:
        del fleet.orders[0]
        outcome = draw.choice((LedgerOutcome.FAILED, LedgerOutcome.CONFLICT, LedgerOutcome.ADVANCED))
        fleet.tell(LedgerResult(order.task.ledger_id, order.op, outcome))


def _repeats(fleet: Fleet, draw: Random) -> None:
    if fleet.history:
        fleet.tell(draw.choice(fleet.history[-20:])[1])


def _somebody_else_directs(fleet: Fleet, draw: Random) -> None:
    if draw.random() < 0.1:
        fleet.foreign = Directive(fleet.state.epoch + draw.randrange(1, 3), draw.choice(("third", "new")))
        fleet.contested_heard = True
        fleet.orders.clear()
        fleet.later().tell(fleet.registry_event())


def _two_are_active(fleet: Fleet, draw: Random) -> None:
    if draw.random() < 0.1 and fleet.foreign is None and len(fleet.state.entries) > 1:
        fleet.contested_heard = True
        fleet.later().tell(fleet.registry_event(two_active=True))
        fleet.contested_heard = False
        fleet.later().tell(fleet.registry_event())


_STEPS: tuple[tuple[int, Callable[[Fleet, Random], None]], ...] = (
    (6, _start), (1, _roll_back), (1, _abort), (1, _command("Pause")), (3, _command("Resume")), (3, _luck),
    (3, _cleans_up), (3, _remedy), (4, _time),
    (6, _adopts), (6, _reports), (10, _follows), (1, _goes_back), (1, _joins), (1, _leaves), (8, _writes),
    (1, _client_fails), (1, _new_reference), (16, _works), (1, _dies), (1, _fails), (2, _repeats),
    (8, _read), (2, _lists),
    (1, _somebody_else_directs), (1, _two_are_active),
)  # fmt: skip


# --- when all behave again


def _settle(fleet: Fleet) -> None:
    """Brokers follow and say so, all is read, executors answer, and the registry says what was ordered."""
    for _ in range(3):
        for name in fleet.fleet:
            fleet.later().adopt(name)
            fleet.report(name)
        fleet.read()
        lease = fleet.state.lease
        if lease is None or fleet.now_ms >= lease.valid_until_ms:
            fleet.tell(fleet.lease_event((lease.token if lease else 0) + 1))
        fleet.work(limit=200)


def _is_over(fleet: Fleet) -> bool:
    switch = fleet.state.switch
    return switch is None or switch.stage in ENDED or (switch.stage is S.DONE_WITH_FAILURES)


def way_out(fleet: Fleet) -> str:
    """What a person does who wants it over: empty when that leads to an end; else where it stays for good."""
    draw = Random(1)
    # Whoever had lost it gives it up.
    _settle(fleet)
    for _ in range(6):
        if _is_over(fleet) and fleet.foreign is None:
            return ""
        for step in (_command("Resume"), _drives_on, _abort, _roll_back):
            if _is_over(fleet) and fleet.foreign is None:
                return ""
            step(fleet, draw)
            _settle(fleet)
            _remedy(fleet, draw)
            _settle(fleet)
        if fleet.state.switch is not None and fleet.stage is S.HOLD:
            fleet.later(16 * DAY_MS)
            _settle(fleet)
            fleet.tell(Cleanup(key=fleet.key()))
            _settle(fleet)
    if fleet.state.switch is None:
        return f"NO WAY OUT of the directive of epoch {fleet.foreign.epoch if fleet.foreign else 0}"
    switch = fleet.switch
    return f"NO WAY OUT of {switch.stage.value}: halted {switch.halted!r}, blocked {switch.blocked!r}"


def walk(seed: int, steps: int) -> Iterator[str]:
    """One walk; each step by its name, and at last what harm was done, if any."""
    draw, fleet = Random(seed), Fleet()
    weights = [w for w, _ in _STEPS]
    try:
        for _ in range(steps):
            step = draw.choices(_STEPS, weights)[0][1]
            yield step.__name__
            step(fleet, draw)
            _references_lead_somewhere(fleet)
        assert stored(fleet.state) == fleet.state
        if why := way_out(fleet):
            yield f"harm: {why}"
    except HarmError as harm:
        yield f"harm: {harm}"


def _references_lead_somewhere(fleet: Fleet) -> None:
    for path, ref in fleet.refs.items():
        held = fleet.clusters[ref.attribution or "old"].ledgers.get(ref.ledger_id)
        if ref.ledger_id >= 0 and (held is None or held.content != ref.content):
            raise HarmError(f"LOST: {path} leads nowhere")


def walks(count: int, steps: int, first: int = 0) -> tuple[int, dict[int, str]]:
    """So many steps were made, and what harm each of the walks did that did any."""
    made, harms = 0, {}
    for seed in range(first, first + count):
        for said in walk(seed, steps):
            made += 1
            if said.startswith("harm: "):
                harms[seed] = said
    return made, harms


def main() -> None:
    count, steps, *rest = (int(a) for a in sys.argv[1:])
    made, harms = walks(count, steps, *rest)
    kinds = Counter(h.split(":")[1].strip()[:24] for h in harms.values())
    sys.stdout.write(f"{made} steps in {count} walks, {len(harms)} did harm: {dict(kinds)}\n")
    for seed, harm in list(harms.items())[:40]:
        sys.stdout.write(f"  {seed}: {harm}\n")


if __name__ == "__main__":
    main()
