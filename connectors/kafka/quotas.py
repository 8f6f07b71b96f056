"""Reads and alters a cluster's client quotas, and reads how each broker enforces them.

kafka-python has the messages but no methods for them, so `ClusterClient` sends them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import errors
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest, DescribeConfigsRequest

from connectors.kafka.cluster_client import ClusterClient, KafkaBroker, NodeId, error_in
from policies.free_space.levels import Original, Rate
from policies.throttle.quotas import DEFAULT_WINDOW_SECONDS, record_entity, recorded_entity
from policies.throttle.settings import DEFAULT, Entity
from policies.units import UserError

RATE_KEY = "producer_byte_rate"
CALLBACK_KEY = "client.quota.callback.class"

FAILURES: tuple[type[Exception], ...] = (errors.KafkaError, OSError, UserError)
"""All exceptions of the calls below; a missing file of the connection is a UserError."""

_LATEST_KEY = "consumer_byte_rate"
"""The field of an original quota's record that has the rate that Headgate set."""
_OWNER_KEY = "controller_mutation_rate"
"""The field of an original quota's record that names the Headgate that set it."""
_WINDOW_KEYS = ("quota.window.num", "quota.window.size.seconds")
_USER, _CLIENT_ID = "user", "client-id"
_BROKER = 4  # the type of a configuration resource
_MOST_TRIED = 3
"""Brokers that one reading asks, one after the other, until one answers."""


@dataclass(frozen=True, slots=True)
class BrokerQuotas:
    """All client quotas of a cluster, as one broker shows them at one moment."""

    broker: NodeId
    rates: Mapping[Entity, int] = field(default_factory=dict)
    """The rate of each entity that has one of its own, without Headgate's records."""
    originals: Mapping[Entity, Original] = field(default_factory=dict)
    """Headgate's records, by the entity that they are about."""


@dataclass(frozen=True, slots=True)
class BrokerQuotaSettings:
    """How a broker enforces quotas."""

    callback: str | None = None
    """Its custom quota callback, which ignores the quotas set here."""
    window_seconds: float = DEFAULT_WINDOW_SECONDS
    """The time over which it measures a rate."""


class QuotaClient(ClusterClient):
    """A client that also reads and alters quotas. Call `describe` first, which finds a broker that answers."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._turn = 0
        self._silent: set[NodeId] = set()

    def describe(self) -> tuple[KafkaBroker, ...]:
        """Return all registered brokers; each may be asked again."""
        self._silent.clear()
        return super().describe()

    def read(self) -> BrokerQuotas:
        """Read all client quotas from one broker, from another one each time.

        Raises KafkaError if there is no answer in time, or a refusal.
        """
        nodes = self._candidates()
        brokers = sorted(int(node) for node in nodes if isinstance(node, int) and node not in self._silent)
        self._turn += 1
        first = self._turn % len(brokers) if brokers else 0
        failure: Exception = errors.NodeNotReadyError("no broker is known")
        for node in ([*brokers[first:], *brokers[:first]] or nodes)[:_MOST_TRIED]:
            try:
                every_quota = DescribeClientQuotasRequest(components=[], strict=False)
                return _read_quotas(node, self._ask_one(node, every_quota))
            except errors.AuthorizationError:
                raise
            except errors.KafkaError as error:
                self._silent.add(node)
                failure = error
        raise failure

    def alter(
        self, rates: Mapping[Entity, Rate], originals: Mapping[Entity, Original | None] | None = None
    ) -> dict[Entity, Exception]:
        """Set the rates of entities, or remove them (None); return the refused ones, each with its error.

        Their other quotas stay. `originals` has the records of original quotas to set or to remove in the same change.
        Raises KafkaError if there is no answer in time; the request may have had its effect or not.
        """
        changes = {entity: [(RATE_KEY, float(rate or 0), rate is None)] for entity, rate in rates.items()}
        for entity, original in (originals or {}).items():
            baseline = original.baseline if original else None
            latest = original.latest if original else None
            changes[record_entity(entity)] = [
                (RATE_KEY, float(baseline or 0), baseline is None),
                (_LATEST_KEY, float(latest or 0), latest is None),
                (_OWNER_KEY, float(original.owner if original else 0), original is None),
            ]
        entries = [(_names(entity), operations) for entity, operations in changes.items()]
        response = self._ask_one(self._candidates()[0], AlterClientQuotasRequest(entries=entries, validate_only=False))
        results = ((_entity(entry.entity), error_in(entry)) for entry in response.entries)
        return {recorded_entity(entity) or entity: error for entity, error in results if error is not None}

    def broker_settings(self) -> dict[int, BrokerQuotaSettings]:
        """Return how each broker enforces quotas; brokers that do not answer are omitted.

        Raises KafkaError if no broker answered, or this client may not read configurations.
        """

        def describe(broker: int) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(resources=[(_BROKER, str(broker), [CALLBACK_KEY, *_WINDOW_KEYS])])

        brokers = [broker.broker for broker in self.describe() if not broker.fenced]
        found: dict[int, BrokerQuotaSettings] = {}
        failures: list[Exception] = []
        for node, answer in self._ask_all(brokers, describe):
            result: Any = answer if isinstance(answer, Exception) else answer.results[0]
            if (failure := error_in(result)) is not None:
                failures.append(failure)
            else:
                configs = {each.name: each.value for each in result.configs}
                samples, seconds = (configs.get(key) for key in _WINDOW_KEYS)
                window = float(samples) * float(seconds) if samples and seconds else DEFAULT_WINDOW_SECONDS
                found[node] = BrokerQuotaSettings(configs.get(CALLBACK_KEY) or None, window)
        for failure in failures:
            if isinstance(failure, errors.AuthorizationError) or len(failures) == len(brokers):
                raise failure
        return found

    def _ask_one(self, node: NodeId, request: Any) -> Any:
        """Send a request to a node, and return its response."""
        if self._tokens is not None:
            self._tokens.renew_if_due()
        ((_, answer),) = self._ask_all([node], lambda _: request)
        if (error := error_in(answer)) is not None:
            raise error
        return answer


def _read_quotas(node: NodeId, response: Any) -> BrokerQuotas:
    rates: dict[Entity, int] = {}
    originals: dict[Entity, Original] = {}
    for entry in response.entries or ():
        entity = _entity(entry.entity)
        # Kafka stores doubles, and accepts whole numbers only.
        values = {value.key: int(value.value) for value in entry.values}
        if (about := recorded_entity(entity)) is not None and _LATEST_KEY in values:
            originals[about] = Original(values.get(RATE_KEY), values[_LATEST_KEY], values.get(_OWNER_KEY, 1))
        elif RATE_KEY in values and entity.parts:
            rates[entity] = values[RATE_KEY]
    return BrokerQuotas(node, rates, originals)


def _names(entity: Entity) -> list[tuple[str, str | None]]:
    """Return an entity as the messages have it, where None is the default."""
    return [(kind, None if name is DEFAULT else name) for kind, name in entity.parts]


def _entity(parts: Iterable[Any]) -> Entity:
    names = {part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in parts}
    return Entity(names.get(_USER), names.get(_CLIENT_ID))
