"""A cluster's producer quotas: reads and alters them, and finds out whether brokers enforce them at all.

kafka-python has the messages but no methods for them, so they are sent as `ClusterClient` sends its own.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from kafka import errors
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest, DescribeConfigsRequest

from connectors.kafka.cluster_client import ClusterClient, NodeAnswer, NodeId
from connectors.kafka.outcomes import error_in
from policies.errors import UserError
from policies.throttle.quota_plan import Rate
from policies.throttle.quota_settings import DEFAULT, Entity

RATE_KEY = "producer_byte_rate"
CALLBACK_KEY = "client.quota.callback.class"

FAILURES: tuple[type[Exception], ...] = (errors.KafkaError, OSError, UserError)
"""What any of the calls below may raise; a file of the connection that has gone is a UserError."""

_USER, _CLIENT_ID = "user", "client-id"
_EXACT, _DEFAULT = 0, 1  # how a component of a filter matches
_BROKER = 4  # the type of a configuration resource
_GRACE_SECONDS = 0.2  # kafka-python's own time-outs say more than ours
_IN_FLIGHT = 4  # of requests; kafka-python refuses more than five to a broker at once


class QuotaClient(ClusterClient):
    """A client that also reads and alters quotas. Call `describe` first: it finds a broker that answers."""

    def rates(self, entities: Sequence[Entity]) -> dict[Entity, Rate]:
        """What each entity has itself; what it inherits from another does not count.

        Raises:
            KafkaError: no answer in time, or a refusal.
        """
        requests = [DescribeClientQuotasRequest(components=_components(e), strict=True) for e in entities]
        return {
            entity: next((rate for found, rate in _rates_in(response) if found == entity), None)
            for entity, response in zip(entities, self._ask_one(requests), strict=True)
        }

    def entities_of(self, user: str) -> set[Entity]:
        """The entities of one user, with client ids too, that have a rate. Raises as `rates` does."""
        request = DescribeClientQuotasRequest(components=_components(Entity(user)), strict=False)
        (response,) = self._ask_one([request])
        return {entity for entity, _ in _rates_in(response)}

    def alter(self, rates: Mapping[Entity, Rate]) -> dict[Entity, Exception]:
        """Give entities these rates, or take theirs away; other quotas they have stay as they are.

        Returns:
            The entities for which it was refused, with why.

        Raises:
            KafkaError: no answer in time; whether anything was done is not known.
        """
        entries = [(_parts(entity), [(RATE_KEY, float(rate or 0), rate is None)]) for entity, rate in rates.items()]
        (response,) = self._ask_one([AlterClientQuotasRequest(entries=entries, validate_only=False)])
        results = ((_entity(entry.entity), error_in(entry)) for entry in response.entries)
        return {entity: error for entity, error in results if error is not None}

    def callback_classes(self) -> dict[int, str]:
        """The brokers that have a quota callback of their own, with its class: they heed no quotas set here.

        Brokers that do not answer are left out.

        Raises:
            KafkaError: none answered, or this client may not read configurations.
        """
        brokers = [broker for broker in self.describe() if not broker.fenced]
        answers: SimpleQueue[NodeAnswer] = SimpleQueue()
        for broker in brokers:
            resources = [(_BROKER, str(broker.broker), [CALLBACK_KEY])]
            self._ask(broker.broker, DescribeConfigsRequest(resources=resources), answers)
        found: dict[int, str] = {}
        failures: list[BaseException] = []
        for node, answer in self._answers(answers, len(brokers)):
            failure = answer if isinstance(answer, BaseException) else error_in(answer.results[0])
            if failure is not None:
                failures.append(failure)
            elif value := _value(answer.results[0], CALLBACK_KEY):
                found[int(node)] = value
        for failure in failures:
            if isinstance(failure, errors.AuthorizationError) or len(failures) == len(brokers):
                raise failure
        return found

    def _ask_one(self, requests: Sequence[Any]) -> list[Any]:
        """Send requests to the broker that answered last; their responses, in order."""
        node, responses = self._candidates()[0], list[Any]()
        for first in range(0, len(requests), _IN_FLIGHT):
            some = requests[first : first + _IN_FLIGHT]
            queues: list[SimpleQueue[NodeAnswer]] = [SimpleQueue() for _ in some]
            for request, queue in zip(some, queues, strict=True):
                self._ask(node, request, queue)
            responses += [_response(answer) for queue in queues for _, answer in self._answers(queue, 1)]
        return responses

    def _answers(self, queue: "SimpleQueue[NodeAnswer]", count: int) -> Iterator[tuple[NodeId, Any]]:
        deadline = time.monotonic() + self._timeout_seconds + _GRACE_SECONDS
        for _ in range(count):
            try:
                yield queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise self._timed_out() from None


def _response(answer: Any) -> Any:
    """A response without an error of its own; those of its entries are the caller's."""
    error = answer if isinstance(answer, BaseException) else None
    if error is None and hasattr(answer, "error_code"):
        error = error_in(answer)
    if error is not None:
        raise error
    return answer


def _parts(entity: Entity) -> list[tuple[str, str | None]]:
    """As the messages have it: None is the default."""
    parts = ((_USER, entity.user), (_CLIENT_ID, entity.client_id))
    return [(kind, None if name == DEFAULT else name) for kind, name in parts if name is not None]


def _components(entity: Entity) -> list[tuple[str, int, str | None]]:
    return [(kind, _DEFAULT if name is None else _EXACT, name) for kind, name in _parts(entity)]


def _entity(parts: Iterable[Any]) -> Entity:
    names = {part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in parts}
    return Entity(names.get(_USER), names.get(_CLIENT_ID))


def _rates_in(response: Any) -> Iterator[tuple[Entity, int]]:
    for entry in response.entries or ():
        for value in entry.values:
            if value.key == RATE_KEY:
                # Kafka keeps a double, and takes whole numbers only.
                yield _entity(entry.entity), int(value.value)


def _value(result: Any, key: str) -> str | None:
    return next((config.value for config in result.configs if config.name == key), None)
