"""Carries out orders about the registry: clusters, directive, statuses, permits to close clients."""

from collections.abc import Callable

import structlog
from kazoo.exceptions import KazooException

from connectors.switching.registry import Registry
from connectors.zookeeper.json_znodes import ZnodeConflictError, ZnodeError
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from policies.errors import UserError
from policies.observations import Outcome
from policies.switching.decisions import SwitchDecision, SwitchVerdict
from policies.switching.id_generators import hob_name
from policies.switching.readings import StatusAction, SwitchStatus
from policies.switching.state import ClusterStatus

REGISTRY_ORDERS = frozenset(
    {
        SwitchVerdict.WRITE_REGISTRY,
        SwitchVerdict.REMOVE_REGISTRY,
        SwitchVerdict.WRITE_DIRECTIVE,
        SwitchVerdict.WRITE_STATUS,
        SwitchVerdict.CLOSE_CLIENT,
        SwitchVerdict.ADVANCE_IDS,
    }
)

_log = structlog.get_logger(__name__)


class RegistryOrders:
    """Carries orders out. For one thread.

    Args:
        advance_ids: creates a `HOB` in the id generator of a BookKeeper cluster.
    """

    def __init__(self, cluster: str, registry: Registry, advance_ids: Callable[[str, int], None]) -> None:
        self._cluster = cluster
        self._registry = registry
        self._advance_ids = advance_ids

    def write_proposed(self) -> None:
        """Write missing entries in the format of PIP-477. Raises ZnodeError: try again."""
        self._registry.write_proposed()

    def carry_out(self, order: SwitchDecision) -> SwitchStatus | None:
        """Carry out an order. Returns the result of a status; the next reading of the registry shows the others.

        Raises:
            ZnodeError: ZooKeeper does not answer, or a znode cannot be read: try again.
        """
        try:
            return self._carry_out(order)
        except ZnodeConflictError as error:
            # Another client wrote there, and the next reading shows it.
            _log.warning("registry conflict", cluster=self._cluster, subject=order.subject, detail=str(error))
            return None

    def _carry_out(self, order: SwitchDecision) -> SwitchStatus | None:
        args, name = order.args, str(order.args.get("name") or "")
        match order.verdict:
            case SwitchVerdict.WRITE_REGISTRY:
                self._registry.write_cluster(
                    name,
                    uri=str(args["uri"]),
                    instance_id=str(args["instance_id"]),
                    root=str(args["root"]),
                    status=ClusterStatus(str(args["status"])),
                    version=_parse_version(order, "version"),
                    bootstrap=str(args["bootstrap"]) if args.get("bootstrap") else None,
                )
            case SwitchVerdict.REMOVE_REGISTRY:
                self._registry.remove_cluster(name, _parse_version(order, "version"))
            case SwitchVerdict.WRITE_DIRECTIVE:
                epoch = int(args["directive_epoch"] or 0)
                if detail := self._registry.write_directive(epoch, str(args["target"])):
                    _log.warning("a later directive is in force", cluster=self._cluster, epoch=epoch, detail=detail)
            case SwitchVerdict.WRITE_STATUS:
                return self._write_status(order, name)
            case SwitchVerdict.CLOSE_CLIENT:
                self._registry.allow_close(name, order.epoch)
            case SwitchVerdict.ADVANCE_IDS:
                self._advance(name, int(args["hob"] or 0))
        return None

    def _advance(self, name: str, hob: int) -> None:
        try:
            self._advance_ids(name, hob)
        except (KazooException, NotConnectedError, UnreadError, UserError, OSError) as error:
            raise ZnodeError(f"the ids of {name} cannot be advanced to {hob_name(hob)}: {detail_of(error)}") from None

    def _write_status(self, order: SwitchDecision, name: str) -> SwitchStatus:
        status = ClusterStatus(str(order.args["status"]))
        becomes_active = status is ClusterStatus.ACTIVE
        commit = order.epoch if becomes_active else None
        deprecated = str(order.args["deprecated"]) if order.args.get("deprecated") else None
        version = _parse_version(order, "expected_version")
        refused = self._registry.write_status(name, status, version, commit, deprecated)
        if refused:
            _log.warning("a status cannot be written", cluster=self._cluster, name=name, detail=refused)
        return SwitchStatus(
            cluster=self._cluster,
            outcome=Outcome.OK,
            detail=refused or None,
            action=StatusAction.STATUS_NEW if becomes_active else StatusAction.STATUS_OLD,
            op=order.op,
            written=not refused,
        )


def _parse_version(order: SwitchDecision, name: str) -> int | None:
    version = order.args.get(name)
    return version if isinstance(version, int) else None
