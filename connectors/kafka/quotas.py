"""Reads and alters a cluster's producer quotas, and detects brokers that do not enforce them.

kafka-python has the messages but no methods for them, so `ClusterClient` sends them.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from kafka import errors
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest, DescribeConfigsRequest

from connectors.kafka.cluster_client import GRACE_SECONDS, ClusterClient, NodeAnswer, NodeId
from connectors.kafka.outcomes import error_in
from policies.errors import UserError
from policies.throttle.quota_plan import Rate
from policies.throttle.quota_settings import DEFAULT, Entity

RATE_KEY = "producer_byte_rate"
CALLBACK_KEY = "client.quota.callback.class"

FAILURES: tuple[type[Exception], ...] = (errors.KafkaError, OSError, UserError)
"""All exceptions of the calls below; a missing file of the connection is a UserError."""

_USER, _CLIENT_ID = "user", "client-id"
_EXACT, _DEFAULT = 0, 1  # how a component of a filter matches
_BROKER = 4  # the type of a configuration resource
_IN_FLIGHT = 4  # parallel requests; kafka-python refuses more than five to a broker


class QuotaClient(ClusterClient):
    """A client that also reads and alters quotas. Call `describe` first, which finds a broker that answers."""

    def rates(self, entities: Sequence[Entity]) -> dict[Entity, Rate]:
        """Return the rate of each entity itself, without rates that it inherits.

        Raises:
            KafkaError: no answer in time, or a refusal.
        """
        requests = [DescribeClientQuotasRequest(components=_components(e), strict=True) for e in entities]
        return {
            entity: next((rate for found, rate in _rates_in(response) if found == entity), None)
            for entity, response in zip(entities, self._ask_one(requests), strict=True)
        }

    def entities_of(self, user: str) -> set[Entity]:
        """Return the entities of one user that have a rate, with those of its client ids. Raises as `rates` does."""
        request = DescribeClientQuotasRequest(components=_components(Entity(user)), strict=False)
        (response,) = self._ask_one([request])
        return {entity for entity, _ in _rates_in(response)}

    def alter(self, rates: Mapping[Entity, Rate]) -> dict[Entity, Exception]:
        """Set the rates of entities, or remove them (None); their other quotas stay.

        Returns:
            The refused entities, each with its error.

        Raises:
            KafkaError: no answer in time; the request may have had its effect or not.
        """
        entries = [(_names(entity), [(RATE_KEY, float(rate or 0), rate is None)]) for entity, rate in rates.items()]
        (response,) = self._ask_one([AlterClientQuotasRequest(entries=entries, validate_only=False)])
        results = ((_entity(entry.entity), error_in(entry)) for entry in response.entries)
        return {entity: error for entity, error in results if error is not None}

    def callback_classes(self) -> dict[int, str]:
        """Return the class of each broker's custom quota callback; such a broker ignores the quotas set here.

        Brokers that do not answer are omitted.

        Raises:
            KafkaError: no broker answered, or this client may not read configurations.
        """
        brokers = [broker for broker in self.describe() if not broker.fenced]
        answers: SimpleQueue[NodeAnswer] = SimpleQueue()
        for broker in brokers:
            resources = [(_BROKER, str(broker.broker), [CALLBACK_KEY])]
            self._ask(broker.broker, DescribeConfigsRequest(resources=resources), answers)
        found: dict[int, str] = {}
        failures: list[Exception] = []
        for node, answer in self._answers(answers, len(brokers)):
            result: Any = answer if isinstance(answer, BaseException) else answer.results[0]
            if (failure := error_in(result)) is not None:
                failures.append(failure)
            elif value := next((each.value for each in result.configs if each.name == CALLBACK_KEY), None):
                found[int(node)] = value
        for failure in failures:
            if isinstance(failure, errors.AuthorizationError) or len(failures) == len(brokers):
                raise failure
        return found

    def _ask_one(self, requests: Sequence[Any]) -> list[Any]:
        """Send requests to the broker that answered last, and return the responses in order."""
        node, responses = self._candidates()[0], list[Any]()
        for first in range(0, len(requests), _IN_FLIGHT):
            some = requests[first : first + _IN_FLIGHT]
            queues: list[SimpleQueue[NodeAnswer]] = [SimpleQueue() for _ in some]
            for request, queue in zip(some, queues, strict=True):
                self._ask(node, request, queue)
            for queue in queues:
                ((_, answer),) = self._answers(queue, 1)
                if (error := error_in(answer)) is not None:
                    raise error
                responses.append(answer)
        return responses

    def _answers(self, queue: "SimpleQueue[NodeAnswer]", count: int) -> Iterator[tuple[NodeId, Any]]:
        deadline = time.monotonic() + self._timeout_seconds + GRACE_SECONDS
        for _ in range(count):
            try:
                yield queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise self._timed_out() from None


def _names(entity: Entity) -> list[tuple[str, str | None]]:
    """Return an entity as the messages have it, where None is the default."""
    names = ((_USER, entity.user), (_CLIENT_ID, entity.client_id))
    return [(kind, None if name == DEFAULT else name) for kind, name in names if name is not None]


def _components(entity: Entity) -> list[tuple[str, int, str | None]]:
    return [(kind, _DEFAULT if name is None else _EXACT, name) for kind, name in _names(entity)]


def _entity(parts: Iterable[Any]) -> Entity:
    names = {part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in parts}
    return Entity(names.get(_USER), names.get(_CLIENT_ID))


def _rates_in(response: Any) -> Iterator[tuple[Entity, int]]:
    for entry in response.entries or ():
        for value in entry.values:
            if value.key == RATE_KEY:
                # Kafka stores a double, and accepts whole numbers only.
                yield _entity(entry.entity), int(value.value)
