"""Seeded random walks over switches of a fleet in which events come late, twice or never: no history may do harm.

The fleet has two to five clusters. Operators give any command at any time and follow every remedy that a refusal names.
A foreign process writes directives too. At the end of a walk all parts behave again, and an operator must find a way to
end the switch.

    python -m bench.switch_walk 300 80      # 300 walks of 80 steps each
"""

import sys
from collections import Counter
from random import Random

from bench.switch_walk import steps as walk_steps
from bench.switch_walk.fleet import Fleet, fleet_of
from bench.switch_walk.steps import STEPS
from policies.switching.settings import DAY_MS
from policies.switching.state import ENDED, SwitchStage
from tests.policies.switching.events import command
from tests.policies.switching.world import HarmError, stored

S = SwitchStage


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
        for step in walk_steps.WAYS_OUT:
            if _is_over(fleet) and fleet.foreign is None:
                return ""
            step(fleet, draw)
            _settle(fleet)
            walk_steps.follow_remedy(fleet, draw)
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
