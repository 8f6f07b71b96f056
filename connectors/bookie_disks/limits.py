"""The two kinds of Pulsar's publish limits, and the records of the original ones in properties of namespaces.

Measured on Pulsar 4.2.4: each takes effect within 2 s, and its removal within 0.5 s. Pulsar's admin REST API has no
conditional writes, so a limit is read before it is set, and again afterwards.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar, NamedTuple

import msgspec
from pydantic import TypeAdapter

from connectors.http.rest import AdminError
from connectors.pulsar.admin import AdminApi, join_path
from policies.bookie_disks.readings import FoundLimit, PublishPlan, PublishRecord
from policies.observations import Outcome
from policies.units import MAX_INT64

BROKERS = "brokers"
"""The one target of the limit of brokers."""
SYSTEM = "pulsar/system"
"""The namespace whose property has the record of the brokers' limit. Its own limit is never changed."""
_SETTING = "brokerPublisherThrottlingMaxByteRate"

_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_TEXTS = TypeAdapter(dict[str, str])
_BYTES, _MESSAGES = "publishThrottlingRateInByte", "publishThrottlingRateInMsg"


class FoundRecords(NamedTuple):
    """The records of all targets of one kind of limit."""

    known: dict[str, PublishRecord]
    damaged: dict[str, AdminError]
    """Targets that must not be touched: their property is not one of ours, so their original limit is not known."""


class PublishAdmin(AdminApi):
    """The part of Pulsar's admin REST API with publish limits. Every method raises as `RestClient.get` does."""

    def read(self, path: str, shape: TypeAdapter[Any] = _ANY) -> Any:
        """Return a document; None if there is none."""
        return self._unless_missing(path, shape, None)

    def send(self, method: str, path: str, body: Any = None) -> None:
        """Send a request."""
        self._rest.send(method, path, json=body)

    def send_unless_missing(self, method: str, path: str) -> None:
        """Send a request to an object that may be gone."""
        try:
            self.send(method, path)
        except AdminError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise


class PublishLimits(ABC):
    """One kind of limit. Targets are names: namespaces, or `BROKERS`."""

    record_name: ClassVar[str]
    """The property with a target's record."""

    def __init__(self, admin: PublishAdmin) -> None:
        self._admin = admin

    def close(self) -> None:
        """Close all connections."""
        self._admin.close()

    def list_all(self) -> Sequence[str]:
        """Return everything that can be a target: all namespaces but the system's."""
        found = (name for tenant in self._admin.tenants() for name in self._admin.namespaces(tenant))
        return sorted(name for name in found if name != SYSTEM)

    def records(self) -> FoundRecords:
        """Find the records of all targets."""
        found = FoundRecords({}, {})
        for target in self.list_all():
            properties = self._admin.read(_path(_record_place(target), "properties"), _TEXTS) or {}
            if self.record_name not in properties:
                continue
            try:
                found.known[target] = msgspec.json.decode(properties[self.record_name], type=PublishRecord)
            except msgspec.MsgspecError as error:
                why = f"property {self.record_name} of {_record_place(target)} is damaged: {error}"
                found.damaged[target] = AdminError(Outcome.ERROR, why)
        return found

    def write_record(self, target: str, record: PublishRecord) -> None:
        """Write the record to a property of the target's namespace."""
        properties = {self.record_name: msgspec.json.encode(record).decode()}
        self._admin.send("PUT", _path(_record_place(target), "properties"), properties)

    def delete_record(self, target: str) -> None:
        """Delete the property; there may be none."""
        self._admin.send_unless_missing("DELETE", _path(_record_place(target), "property", self.record_name))

    def list_targets(self, groups: Mapping[str, str], everywhere: str, slowed: Iterable[str]) -> dict[str, str]:
        """Return the group of each namespace of the groups to slow down; those without affinity are `everywhere`."""
        wanted = set(slowed)
        if not wanted:
            return {}
        placed = {name: groups.get(name, everywhere) for name in self.list_all()}
        return {name: group for name, group in placed.items() if group in wanted}

    @abstractmethod
    def sum_rates(self, plans: Mapping[str, PublishPlan]) -> Mapping[str, int | None]:
        """Return what producers may publish by the plans carried out, as fields of a `PublishState`."""

    @abstractmethod
    def find(self, target: str) -> FoundLimit:
        """Return a target's present limit."""

    @abstractmethod
    def set(self, target: str, rate: int) -> None:
        """Set a target's limit."""

    @abstractmethod
    def restore(self, target: str, original: FoundLimit) -> None:
        """Put a target's original limit back."""


class NamespaceLimits(PublishLimits):
    """The publish rate of namespaces, for each of their topics."""

    record_name = "headgate-publish-rate"

    def sum_rates(self, plans: Mapping[str, PublishPlan]) -> Mapping[str, int | None]:
        """Return the rate of one topic of each namespace: the number of topics is not known."""
        return {"topics_bytes_per_second": min(sum(plan.highest_rate or 0 for plan in plans.values()), MAX_INT64)}

    def find(self, target: str) -> FoundLimit:
        """Return the publish rate; a rate in messages alone limits no bytes."""
        document = self._admin.read(_path(target, "publishRate"))
        if not isinstance(document, dict):
            return FoundLimit(None, None)
        rate = document.get(_BYTES)
        return FoundLimit(rate if isinstance(rate, int) and rate > 0 else None, json.dumps(document, sort_keys=True))

    def set(self, target: str, rate: int) -> None:
        """Set the rate in bytes, and keep that in messages."""
        found = self._admin.read(_path(target, "publishRate"))
        messages = found.get(_MESSAGES, -1) if isinstance(found, dict) else -1
        self._admin.send("POST", _path(target, "publishRate"), {_MESSAGES: messages, _BYTES: rate})

    def restore(self, target: str, original: FoundLimit) -> None:
        """Put back the original document, or none."""
        if original.document is None:
            self._admin.send_unless_missing("DELETE", _path(target, "publishRate"))
        else:
            self._admin.send("POST", _path(target, "publishRate"), json.loads(original.document))


class BrokerLimits(PublishLimits):
    """The dynamic setting of all brokers. Its record is a property of `pulsar/system`."""

    record_name = "headgate-broker-publish-rate"

    def list_all(self) -> Sequence[str]:
        """Return the one target."""
        return (BROKERS,)

    def sum_rates(self, plans: Mapping[str, PublishPlan]) -> Mapping[str, int | None]:
        """Return the dynamic setting times the registered brokers, each of which applies it by itself."""
        rate = plans[BROKERS].highest_rate if BROKERS in plans else None
        let_through = None if rate is None else min(rate * len(self._admin.brokers("local")), MAX_INT64)
        return {"let_through_bytes_per_second": let_through}

    def list_targets(self, groups: Mapping[str, str], everywhere: str, slowed: Iterable[str]) -> dict[str, str]:  # noqa: ARG002
        """Return the brokers, by the first of the groups to slow down; the caller chooses the least factor."""
        first = next(iter(slowed), None)
        return {} if first is None else {BROKERS: first}

    def find(self, target: str) -> FoundLimit:  # noqa: ARG002 - there is one target
        """Return the dynamic setting. Without one, the brokers' own configuration limits, and needs no putting back."""
        dynamic = (self._admin.read("/admin/v2/brokers/configuration/values") or {}).get(_SETTING)
        effective = dynamic
        if dynamic is None:
            effective = self._admin.runtime_configuration().get(_SETTING)
        rate = str(effective)
        return FoundLimit((int(rate) if rate.isdigit() else 0) or None, dynamic)

    def set(self, target: str, rate: int) -> None:  # noqa: ARG002 - there is one target
        """Set the dynamic setting."""
        self._admin.send("POST", f"/admin/v2/brokers/configuration/{_SETTING}/{rate}")

    def restore(self, target: str, original: FoundLimit) -> None:  # noqa: ARG002 - there is one target
        """Put back the original setting, or none."""
        if original.document is None:
            self._admin.send_unless_missing("DELETE", f"/admin/v2/brokers/configuration/{_SETTING}")
        else:
            self._admin.send("POST", f"/admin/v2/brokers/configuration/{_SETTING}/{original.document}")


def _record_place(target: str) -> str:
    return SYSTEM if target == BROKERS else target


def _path(namespace: str, *parts: str) -> str:
    return join_path("/admin/v2/namespaces", *namespace.split("/"), *parts)
