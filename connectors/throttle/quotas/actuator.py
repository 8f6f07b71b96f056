"""Follows the throttle decisions, and has those of each cluster carried out on a thread of its own."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import structlog

from connectors.actuation.actuator import Actuator, LoopTopics, SideTopic
from connectors.throttle.quotas.worker import QuotaWorker
from policies.free_space.publication import FactorOrder
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.readings import AppliedQuota
from policies.units import UserError
from policies.wire import EventReader

_CONCURRENT_CHECKS = 16
"""Clusters are checked in parallel, so that one that does not answer delays the others little."""

_log = structlog.get_logger(__name__)


class QuotaActuator(Actuator[FactorOrder]):
    """Carries out the decisions of some clusters. Only one may run for a cluster at a time.

    When it stops, quotas stay as they are: a restart must not open a gate.

    Args:
        applied: the topic (with its prefix) of the records of applied quotas.
        elsewhere: clusters whose quotas other processes set.
    """

    def __init__(
        self,
        topics: LoopTopics,
        applied: str,
        workers: Mapping[str, QuotaWorker],
        elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        side = SideTopic(applied, EventReader((AppliedQuota,)), self._note_applied)
        super().__init__(
            "quota actuator", "headgate-actuator", topics, workers, ThrottleFactor, FactorOrder.build, side
        )
        self._own = workers
        self._elsewhere = elsewhere
        self._unwatched: defaultdict[str, set[str]] = defaultdict(set)
        """The entities that still have a quota of ours by the records, by cluster without `quotas` in the settings."""

    def _note_applied(self, applied: AppliedQuota) -> None:
        # These records are for people. An original quota is only believed from the watched cluster itself.
        if applied.cluster not in self._own and applied.cluster not in self._elsewhere:
            (set.add if applied.held else set.discard)(self._unwatched[applied.cluster], applied.entity)

    def _prepare(self, stop: Event) -> None:  # noqa: ARG002 - it does not take long
        """Refuse settings that do not fit their clusters, with all problems at once."""
        if problems := find_refusals(self._own.values()):
            raise UserError("\n".join(problems))
        for cluster, entities in self._unwatched.items():
            if entities:
                _log.warning(
                    "a cluster without `quotas` still has our quotas", cluster=cluster, entities=sorted(entities)
                )


def find_refusals(workers: Iterable[QuotaWorker]) -> list[str]:
    """Return why clusters refuse the settings of their quotas."""
    with ThreadPoolExecutor(_CONCURRENT_CHECKS, thread_name_prefix="quota check") as pool:
        return [problem for problem in pool.map(_check_settings, workers) if problem]


def _check_settings(worker: QuotaWorker) -> str | None:
    try:
        worker.preflight()
    except UserError as error:
        return str(error)
    return None
