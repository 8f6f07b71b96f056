"""What a step of the switching policy costs in the middle of a switch of many ledgers, as the query runs it.

A step is: decode the state, take a batch of results in, decide, encode the state. Prints milliseconds a step, for
batches of some sizes, in the stages in which results come.
"""

import argparse
import statistics
import time

import msgspec

from bench.turns import Figures, run
from policies.observations import Observation, Outcome
from policies.switching import SwitchingPolicy, SwitchingSettings, SwitchingState
from policies.switching.clusters import ClusterSnapshot
from policies.switching.id_generators import IdGenerator
from policies.switching.ledger_paths import Layout
from policies.switching.ledgers import LedgerState
from policies.switching.readings import LedgerOutcome, LedgerReading, SwitchLedger
from policies.switching.references import LedgerKind
from policies.switching.state import (
    ClusterStatus,
    Directive,
    InventorySummary,
    LedgerStage,
    LedgerTask,
    OrchestratorLease,
    RegistryEntry,
    Switch,
    SwitchAction,
    SwitchStage,
)
from policies.units import from_millis

CLUSTER = "bench"
NOW_MS = 1_800_000_000_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledgers", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=20)
    run(__doc__ or "", measure, parser)


def measure(given: argparse.Namespace) -> Figures:
    """Measure all batch sizes."""
    return {
        f"switching step, {given.ledgers} ledgers, {results} copied, ms": _measure(given.ledgers, results, given.steps)
        for results in (1, 16, 200)
    }


def _measure(ledgers: int, results: int, steps: int) -> float:
    policy = SwitchingPolicy(CLUSTER, SwitchingSettings())
    state = msgspec.msgpack.encode(_state(ledgers))
    took: list[float] = []
    first = ledgers // 3
    for step in range(steps + 2):
        now = from_millis(NOW_MS + step)
        seen = tuple(_copied(first + n, NOW_MS + step) for n in range(results))
        first += results
        began = time.process_time()
        after = policy.step(msgspec.msgpack.decode(state, type=SwitchingState), seen, now)
        assert after.state is not None
        state = msgspec.msgpack.encode(after.state)
        took.append(1000 * (time.process_time() - began))
        assert len(after.decisions) >= results, after.decisions[:3]
    return statistics.median(took[2:])  # the first step upgrades the state from an older version


def _state(ledgers: int) -> SwitchingState:
    """A third is copied, and the next ones are being copied."""
    tasks = tuple(_task(n, ledgers) for n in range(ledgers))
    entries = tuple(
        RegistryEntry(name, f"zk://{name}", f"id-of-{name}", "/ledgers", status)
        for name, status in (("new", ClusterStatus.STANDBY), ("old", ClusterStatus.ACTIVE))
    )
    switch = Switch(
        source="old", target="new", stage=SwitchStage.BUILD, epoch=1, started_ms=NOW_MS - 9000, target_floor=2**40,
        live_ms=NOW_MS - 8000, rollback_until_ms=NOW_MS + 10**7, cleanup_from_ms=NOW_MS + 10**9, tasks=tasks,
    )  # fmt: skip
    clusters = tuple(
        ClusterSnapshot(
            name=name, instance_id=f"id-of-{name}", root="/ledgers", layout=Layout.HIERARCHICAL,
            generator=IdGenerator(hob, 10, 0), read_ms=NOW_MS - 500,
        )
        for name, hob in (("new", 256), ("old", None))
    )  # fmt: skip
    return SwitchingState(
        bootstrap="old", entries=entries, epoch=1, directive=Directive(1, "new"), switch=switch,
        lease=OrchestratorLease(1, "bench", NOW_MS + 10**9), clusters=clusters, ops=ledgers, sequence=NOW_MS - 10**6,
        inventory=InventorySummary(NOW_MS - 5000, {"old": ledgers}, (), ledgers),
    )  # fmt: skip


def _task(number: int, ledgers: int) -> LedgerTask:
    stage, awaiting = LedgerStage.PENDING, SwitchAction.NONE
    if number < ledgers // 3:
        stage = LedgerStage.BUILT
    elif number < 2 * ledgers // 3:
        stage, awaiting = LedgerStage.COPYING, SwitchAction.COPY
    path = f"/managed-ledgers/tenant/namespace/persistent/a-topic-with-a-name-{number}/subscription"
    return LedgerTask(
        number, LedgerKind.CURSOR, (path,), stage, awaiting, op=number, cleared=True,
        copied=stage is not LedgerStage.PENDING,
    )  # fmt: skip


def _copied(number: int, at_ms: int) -> Observation:
    found = LedgerReading(
        ledger_id=number, state=LedgerState.CLOSED, last_entry_id=0, length_bytes=42, entries_digest="d", created_ms=1
    )
    reading = SwitchLedger(
        cluster=CLUSTER, outcome=Outcome.OK, ledger_id=number, op=number, result=LedgerOutcome.COPIED, source=found,
        target=found,
    )  # fmt: skip
    return Observation(id=f"{at_ms}-{number}", at=from_millis(at_ms), reading=reading)


if __name__ == "__main__":
    main()
