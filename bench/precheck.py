"""The judgement of a precheck in one process: a dedicated or shared target with very many ledgers to import.

    python -m bench.precheck 10000000 1000000      # references, ledgers of them that the target has

Prints the processor time and the memory of the judgement, without the readings.
"""

import resource
import sys
import time

from policies.switching.clusters import ClusterSnapshot
from policies.switching.id_generators import IdGenerator
from policies.switching.ledger_paths import Layout
from policies.switching.precheck.report import precheck
from policies.switching.precheck.snapshot import PrecheckRules, PrecheckSnapshot, TargetLedgers, TargetPolicy
from policies.switching.references import LedgerKind, Reference

_NOW_MS = 1_795_248_000_000


def _make_cluster(name: str, hob: int) -> ClusterSnapshot:
    return ClusterSnapshot(
        name=name, instance_id=f"id-of-{name}", root="/ledgers", layout=Layout.HIERARCHICAL,
        generator=IdGenerator(hob, 0, 0), read_ms=_NOW_MS,
    )  # fmt: skip


def main() -> None:
    """Judge a made snapshot with the numbers of the command line."""
    references, hits = (int(each) for each in sys.argv[1:3])
    seen = PrecheckSnapshot(
        source=_make_cluster("old", 0),
        target=_make_cluster("new", 9),
        references=tuple(
            Reference(LedgerKind.CURSOR, "/managed-ledgers/t/n/persistent/a/s", n) for n in range(references)
        ),
        references_complete=True,
        references_ms=_NOW_MS,
        bootstrap="old",
        existing=TargetLedgers(ids=frozenset(range(hits)), read_ms=_NOW_MS, listed=True),
    )
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    began = time.process_time()
    report = precheck(seen, PrecheckRules(policy=TargetPolicy.SHARED, validity_ms=600_000), _NOW_MS)
    seconds = time.process_time() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(
        f"{len(report.ids_to_import)} to import, {report.reasons}: {seconds:.1f} s of processor time, "
        f"{most} MiB at most, {mebibytes} of them for the readings\n"
    )


if __name__ == "__main__":
    main()
