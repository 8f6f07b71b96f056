"""Seeded random walks over switches of a fleet in which events come late, twice or never: no history may do harm.

The fleet has two to five clusters. Operators give any command at any time and follow every remedy that a refusal names.
A foreign process writes directives too. At the end of a walk all parts behave again, and an operator must find a way to
end the switch.

    python -m bench.switch_walk 300 80      # 300 walks of 80 steps each
"""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from bench.switch_fleet import Broker, Fleet, fleet_of
from policies.switching.ledgers import LedgerKind, TargetPolicy
from policies.switching.readings import LedgerOutcome, SwitchLedger, SwitchStatus
from policies.switching.settings import DAY_MS
from policies.switching.state import ENDED, ClusterStatus, Directive, SwitchStage
from tests.policies.switching.events import Event, answer, command
from tests.policies.switching.world import HarmError, Held, Ref, few, stored

S = SwitchStage
Step = Callable[[Fleet, Random], object]


def _start(fleet: Fleet, draw: Random) -> None:
    target = draw.choice(("new", *fleet.clusters))
    if draw.random() < 0.8:
        fleet.read()
        fleet.tell(fleet.later().prechecked_event(target))
    fleet.tell(fleet.start_event(target))


def _command(name: str) -> Step:
    return lambda fleet, _: fleet.tell(command(name, fleet.key()))


def _roll_back(fleet: Fleet, draw: Random) -> None:
    fleet.read()
    fleet.tell(command("rollback", fleet.key(), attribution_only=draw.random() < 0.5))


def _abort(fleet: Fleet, draw: Random) -> None:
    fleet.read()
    _command("abort")(fleet, draw)


def follow_remedy(fleet: Fleet, _draw: Random) -> None:
    """Follow the remedy of the last refusal."""
    if fleet.remedies:
        name, hob = fleet.remedies.pop()
        fleet.read()
        fleet.clusters[name].advance(hob)
        fleet.just_remedied = True
        fleet.read()
        fleet.just_remedied = False


def _cleans_up(fleet: Fleet, draw: Random) -> None:
    if fleet.state.switch is not None and fleet.stage is S.HOLD and draw.random() < 0.5:
        fleet.later(16 * DAY_MS)
        _dies(fleet, draw)
        _luck(fleet, draw)
    fleet.tell(command("cleanup", fleet.key()))


def _is_silent(fleet: Fleet, draw: Random) -> None:
    """Let everything but one agent report for longer than `ack_timeout`; that broker goes where it wants."""
    name = _any_broker(fleet, draw)
    fleet.later(fleet.limits.ack_timeout_ms)
    if draw.random() < 0.3:
        fleet.fleet[name] = fleet.fleet[name].moved(_any_cluster(fleet, draw))
    for other in sorted(fleet.fleet):
        if other != name:
            fleet.later(10).report(other)
    fleet.read()


def _drives_on(fleet: Fleet, _draw: Random) -> None:
    if fleet.state.switch is not None:
        fleet.tell(fleet.start_event(fleet.switch.target))


def _luck(fleet: Fleet, _draw: Random) -> None:
    """Let everything go well for a while, so that walks get far."""
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


def _any_cluster(fleet: Fleet, draw: Random) -> str:
    return draw.choice(sorted(fleet.clusters))


def _follows(fleet: Fleet, draw: Random, *, opens_client: bool = True) -> None:
    """Let a broker follow; without a new client, one that is open remembers its HOB."""
    name = _any_broker(fleet, draw)
    fleet.later().adopt(name, opens_client=opens_client)
    fleet.report(name)


def _goes_back(fleet: Fleet, draw: Random) -> None:
    name = _any_broker(fleet, draw)
    before = fleet.fleet[name]
    fleet.fleet[name] = before.moved(_any_cluster(fleet, draw), max(0, before.epoch - 1))
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


def _client_fails(fleet: Fleet, draw: Random) -> None:
    if draw.random() < 0.3:
        fleet.read()
        name = _any_broker(fleet, draw)
        fleet.brokers[name] = fleet.fleet[name].writes_to
        fleet.tell(fleet.broker_event(name, failed=True, epoch=fleet.state.epoch))


def _new_reference(fleet: Fleet, draw: Random) -> None:
    """Create a subscription where its broker writes; a disobedient broker creates it in the old cluster."""
    one, path = fleet.fleet[_any_broker(fleet, draw)], f"/n{len(fleet.refs)}"
    if len(fleet.refs) < 8 and draw.random() < 0.3:
        made = fleet.clusters[one.writes_to].allocate(path, fleet.now_ms, one.hob)
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
        names = {fleet.refs[path].attribution for path in order.task.paths}
        if outcome is LedgerOutcome.ADVANCED and names == {fleet.switch.target}:
            outcome = LedgerOutcome.FAILED  # no executor reports a promoted ledger as advanced
        fleet.tell(answer(outcome, order.task.ledger_id, order.op))


def _repeats(fleet: Fleet, draw: Random) -> None:
    if fleet.history:
        fleet.tell(draw.choice(fleet.history[-20:])[1])


def _somebody_else_directs(fleet: Fleet, draw: Random) -> None:
    if draw.random() < 0.1 and fleet.kept is None:
        fleet.foreign = Directive(fleet.state.epoch + draw.randrange(1, 3), _any_cluster(fleet, draw))
        fleet.contested_heard = True
        fleet.orders.clear()
        fleet.later().tell(fleet.registry_event())


def _two_are_active(fleet: Fleet, draw: Random) -> None:
    if draw.random() < 0.1 and fleet.foreign is None and len(fleet.state.entries) > 1:
        fleet.contested_heard = True
        fleet.later().tell(fleet.two_active_event())
        fleet.contested_heard = False
        fleet.later().tell(fleet.registry_event())


# --- late, repeated and lost events


def _is_said(fleet: Fleet, draw: Random) -> None:
    """Take a report or a reading now, to arrive later."""
    names = sorted(fleet.clusters)
    event: Event = draw.choice(
        (
            lambda: fleet.said_by(_any_broker(fleet, draw)),
            lambda: fleet.cluster_event(draw.choice(names)),
            fleet.members_event,
            fleet.registry_event,
            fleet.inventory_event,
        )
    )()
    fleet.under_way.append(event)
    fleet.later(draw.choice((1, 1000)))


def _comes(fleet: Fleet, draw: Random) -> None:
    """Let a delayed event arrive, in any order and sometimes twice."""
    if fleet.under_way:
        event = draw.choice(fleet.under_way)
        if draw.random() < 0.8:
            fleet.under_way.remove(event)
        fleet.later(draw.choice((1, 1000))).tell(event)


def _is_lost(fleet: Fleet, draw: Random) -> None:
    """Lose a delayed event, but no executor's answer: executors repeat those."""
    lost = [e for e in fleet.under_way if not isinstance(e, SwitchLedger | SwitchStatus)]
    if lost:
        fleet.under_way.remove(draw.choice(lost))


def _answers_late(fleet: Fleet, draw: Random) -> None:
    if fleet.orders:
        order = fleet.orders.pop(draw.randrange(len(fleet.orders)))
        fleet.under_way += fleet.later(10).carry_out(order)


# --- further actions of operators and owners


def _rolls_over(fleet: Fleet, draw: Random) -> None:
    """Let a cursor continue in a new ledger, where its owner writes."""
    cursors = [r for r in fleet.refs.values() if r.kind is LedgerKind.CURSOR and r.ledger_id >= 0]
    if cursors and draw.random() < 0.3:
        ref, one = draw.choice(cursors), fleet.fleet[_any_broker(fleet, draw)]
        ref.ledger_id = fleet.clusters[one.writes_to].allocate(ref.content, fleet.now_ms, one.hob)
        ref.attribution = one.writes_to


def _plants(fleet: Fleet, draw: Random) -> None:
    """Put a foreign ledger at an id that the switch wants to import."""
    one, ref = fleet.clusters[_any_cluster(fleet, draw)], draw.choice(sorted(fleet.refs.values(), key=str))
    is_free = ref.ledger_id >= 0 and ref.ledger_id not in one.ledgers and ref.ledger_id not in one.deleted
    if draw.random() < 0.1 and is_free and ref.ledger_id < one.generator.next_id:
        one.ledgers[ref.ledger_id] = Held("foreign", fleet.now_ms)


def _registers(fleet: Fleet, draw: Random) -> None:
    one = fleet.clusters[_any_cluster(fleet, draw)]
    status = draw.choice((None, None, *ClusterStatus))
    uri, key = f"zk://{one.name}", fleet.key()
    fleet.tell(
        command("register", key, name=one.name, uri=uri, instance_id=one.instance, root="/ledgers", status=status)
    )


def _unregisters(fleet: Fleet, draw: Random) -> None:
    if draw.random() < 0.5:
        fleet.list_references()
    fleet.tell(command("unregister", fleet.key(), name=_any_cluster(fleet, draw)))


# --- lost checkpoints, changed settings, clocks and forged reports


def _loses_checkpoint(fleet: Fleet, draw: Random) -> None:
    if draw.random() < 0.25 and fleet.state.entries:
        fleet.lose_checkpoint()
        if draw.random() < 0.7:
            fleet.later().tell(fleet.registry_event())
        _dies(fleet, draw)


def _settings_change(fleet: Fleet, draw: Random) -> None:
    fleet.limits = few(
        copy_concurrency=draw.choice((1, 2, 5)), max_deletions=draw.choice((1, 3)), retries=draw.choice((1, 3)),
        orders_ahead=draw.choice((0, 3)), strategies=draw.choice(({}, {"schema": "remap"}, {"cursor": "remap"})),
        rollback_window=draw.choice(("1s", "1d", "30d")), ack_timeout=draw.choice(("20s", "1m")),
    )  # fmt: skip
    fleet.policy = draw.choice(tuple(TargetPolicy))


def _two_command(fleet: Fleet, draw: Random) -> None:
    """Let two operators command at once, without knowledge of each other."""
    said: list[Callable[[], Event]] = [
        lambda: fleet.start_event(_any_cluster(fleet, draw)),
        lambda: command("rollback", fleet.key(), attribution_only=draw.random() < 0.5),
        lambda: command("cleanup", fleet.key()),
        lambda: command("abort", fleet.key()),
        lambda: command("pause", fleet.key()),
        lambda: command("resume", fleet.key()),
        lambda: command("unregister", fleet.key(), name=_any_cluster(fleet, draw)),
    ]
    fleet.read()
    fleet.tell(*[each() for each in draw.sample(said, 2)])


def _leaps(fleet: Fleet, draw: Random) -> None:
    """Let the clock jump, so that all readings are old."""
    if draw.random() < 0.3:
        fleet.later(draw.choice((3_600_000, 2 * DAY_MS, 20 * DAY_MS)))


def _stands_still(fleet: Fleet, draw: Random) -> None:
    """Stop the clock for the next events."""
    fleet.frozen = draw.randrange(2, 12)


def _is_forged(fleet: Fleet, draw: Random) -> None:
    """Forge a report of a broker that exists or does not."""
    if draw.random() < 0.3:
        name, epoch = draw.choice((*sorted(fleet.fleet), "ghost")), fleet.state.epoch + draw.choice((-1, 0, 0, 1))
        writes = (_any_cluster(fleet, draw),) if draw.random() < 0.5 else ()
        fleet.brokers.setdefault(name, "old")
        seen = fleet.broker_event(name, epoch=max(0, epoch), failed=draw.random() < 0.2, writes=writes)
        if name == "ghost":
            fleet.brokers.pop(name)
        fleet.later().tell(seen)


STEPS: tuple[tuple[int, Step], ...] = (
    (6, _start), (1, _roll_back), (1, _abort), (1, _command("pause")), (3, _command("resume")), (3, _luck),
    (1, lambda fleet, draw: fleet.tell(command("end", fleet.key(), delete=draw.random() < 0.3))),  # at any hour
    (2, _is_silent), (2, partial(_follows, opens_client=False)),
    (3, _cleans_up), (3, follow_remedy), (4, _time),
    (6, lambda fleet, draw: fleet.later().adopt(_any_broker(fleet, draw))),
    (6, lambda fleet, draw: fleet.later().report(_any_broker(fleet, draw))),
    (10, _follows), (1, _goes_back), (1, _joins), (1, _leaves),
    (8, lambda fleet, draw: fleet.write_anywhere(draw.choice(("t1", "t2")), _any_broker(fleet, draw))),
    (1, _client_fails), (1, _new_reference), (16, _works), (1, _dies), (1, _fails), (2, _repeats),
    (8, lambda fleet, _: fleet.read()), (2, lambda fleet, _: fleet.list_references()),
    (4, _is_said), (4, _comes), (1, _is_lost), (3, _answers_late),
    (1, _rolls_over), (1, _plants), (1, _registers), (1, _unregisters),
    (1, lambda fleet, draw: fleet.tell(command("close-client", fleet.key(), name=_any_cluster(fleet, draw)))),
    (1, lambda fleet, draw: fleet.tell(command("precheck", fleet.key(), target=_any_cluster(fleet, draw)))),
    (1, _loses_checkpoint), (1, _settings_change), (1, _two_command), (1, _leaps), (2, _stands_still), (1, _is_forged),
    (1, _somebody_else_directs), (1, _two_are_active),
)  # fmt: skip
"""The steps with their weights."""
WAYS_OUT: tuple[Step, ...] = (_command("resume"), _drives_on, _abort, _roll_back, _command("end"))
"""Commands with which an operator tries to end a switch."""


def _settle(fleet: Fleet) -> None:
    """Let all brokers follow and report, all readings arrive, executors answer, and the registry take the orders."""
    coming, fleet.under_way = fleet.under_way, []
    fleet.later().tell(*coming)
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
    """Try to end the switch as an operator would; returns an empty text, or the stage in which it stays for good."""
    draw = Random(1)
    _settle(fleet)
    for _ in range(6):
        if _is_over(fleet) and fleet.foreign is None:
            return ""
        for step in WAYS_OUT:
            if _is_over(fleet) and fleet.foreign is None:
                return ""
            step(fleet, draw)
            _settle(fleet)
            follow_remedy(fleet, draw)
            _settle(fleet)
        if fleet.state.switch is not None and fleet.stage is S.HOLD:
            fleet.later(16 * DAY_MS)
            _settle(fleet)
            fleet.tell(command("cleanup", fleet.key()))
            _settle(fleet)
    if fleet.state.switch is None:
        return f"NO WAY OUT of the directive of epoch {fleet.foreign.epoch if fleet.foreign else 0}"
    switch = fleet.switch
    return f"NO WAY OUT of {switch.stage.value}: halted {switch.halted!r}, blocked {switch.blocked!r}"


def walk(seed: int, steps: int) -> str:
    """Make one walk; return its harm, or an empty text."""
    draw = Random(seed)
    fleet, weights = fleet_of(draw), [weight for weight, _ in STEPS]
    try:
        for _ in range(steps):
            draw.choices(STEPS, weights)[0][1](fleet, draw)
            _references_lead_somewhere(fleet)
            fleet.must_end_each_wait()
        assert stored(fleet.state) == fleet.state
        return way_out(fleet)
    except HarmError as harm:
        return str(harm)


def _references_lead_somewhere(fleet: Fleet) -> None:
    for path, ref in fleet.refs.items():
        held = fleet.clusters[ref.attribution or "old"].ledgers.get(ref.ledger_id)
        if ref.ledger_id >= 0 and (held is None or held.content != ref.content):
            raise HarmError(f"LOST: {path} leads nowhere")
    switch = fleet.state.switch
    is_held = switch is not None and switch.stage in (S.HOLD, S.CLEANUP, S.DONE) and not fleet.state.contested
    if switch is not None and is_held and fleet.foreign is None and fleet.state.active() != switch.target:
        raise HarmError(f"ACTIVE: a broker that starts at {switch.stage.value} goes to {fleet.state.active()}")


def walks(count: int, steps: int, first: int = 0) -> dict[int, str]:
    """Return the harm of each walk that did harm, by its seed."""
    return {seed: harm for seed in range(first, first + count) if (harm := walk(seed, steps))}


def main() -> None:
    """Run the walks that the arguments name, and print the harm they did."""
    count, steps, *rest = (int(a) for a in sys.argv[1:])
    harms = walks(count, steps, *rest)
    kinds = Counter(harm.split(":")[0][:24] for harm in harms.values())
    sys.stdout.write(f"{count} walks of {steps} steps, {len(harms)} did harm: {dict(kinds)}\n")
    for seed, harm in list(harms.items())[:40]:
        sys.stdout.write(f"  {seed}: {harm}\n")


if __name__ == "__main__":
    main()
