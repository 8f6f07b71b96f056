"""Sends switch commands to the running loop and receives the decisions about them."""

import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.kafka.publisher import DELIVERY_TIMEOUT_SECONDS, Publisher, PublisherMetrics
from connectors.kafka.tail import Record, Tail
from deploy.commands.sending import actor, sayable
from deploy.settings.application import Settings
from deploy.switch.command_result import CommandResult, event_id, result_of
from deploy.switch.loop_kafka import loop_connection
from policies.errors import UserError
from policies.observations import Outcome
from policies.registry import topic_of
from policies.switching.decisions import SwitchDecision, SwitchRecord
from policies.switching.readings import CommandArgs, CommandName, SwitchCommand, SwitchPrecheck
from policies.wire import BadRecordError, EventReader, observation_event

CLIENT_ID = "headgate-switch"
SOURCE = "headgate/cli"

_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 15.0
_AFTERMATH_SECONDS = 0.5
"""A command may lead to several decisions of one batch, which may come in several fetches."""
_LONGEST_AFTERMATH_SECONDS = 2.0
_GRACE_SECONDS = 2.0
"""For a client that gives a record up to say why."""
_LEDGERS = "/ledgers/"
_ALL: timedelta | None = None
_NOTHING = timedelta(0)

_READER: EventReader[Any] = EventReader((SwitchDecision, SwitchRecord, SwitchPrecheck))

Value = TypeVar("Value")
Wanted = Callable[[SwitchDecision], bool]
"""Picks among the latest decisions about single ledgers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """What all commands have in common."""

    cluster: str
    actor: str | None = None
    """Default: the user and the host."""
    reason: str = ""
    key: str | None = None
    """Default: a fresh one."""
    expected_epoch: int | None = None
    dry_run: bool = False

    def command(self, name: CommandName, /, digest: str | None = None, **args: Any) -> SwitchCommand:
        """The command as it is sent.

        Raises:
            UserError: an option is longer or larger than the wire takes.
        """
        try:
            return self._command(name, digest, args)
        except ValidationError as error:
            raise sayable(error) from None

    def _command(self, name: CommandName, digest: str | None, args: dict[str, Any]) -> SwitchCommand:
        return SwitchCommand(
            cluster=self.cluster,
            outcome=Outcome.OK,
            command=name,
            args=CommandArgs(**args),
            actor=self.actor or actor(),
            reason=self.reason,
            idempotency_key=str(uuid.uuid4()) if self.key is None else self.key,
            dry_run=self.dry_run,
            expected_epoch=self.expected_epoch,
            precheck_digest=digest,
        )


class NoDecisionError(Exception):
    """Nothing was decided in time.

    Args:
        message: what was awaited, and what may be the matter.
        command: which was sent.
    """

    def __init__(self, message: str, command: SwitchCommand) -> None:
        super().__init__(message)
        self.command = command


@dataclass(frozen=True, slots=True)
class Received:
    """A decision or report, and the id of its event."""

    id: str
    data: SwitchDecision | SwitchRecord | SwitchPrecheck


class LoopClient:
    """A client of the running loop, for one broker cluster; use it as a context manager, from one thread.

    Args:
        settings: name the loop's Kafka and topics.
        cluster: the broker cluster.
        timeout_seconds: how long a decision is awaited.
        with_past: receive all decisions in force as well, from before it connected; else only what is new.
        ledgers: which decisions about single ledgers are kept, the latest of each, in `ledgers`.

    Raises:
        UserError: the loop's Kafka is not known.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: str,
        timeout_seconds: float,
        *,
        with_past: bool = False,
        ledgers: Wanted | None = None,
    ) -> None:
        self._connection = loop_connection(settings)
        self._cluster = cluster
        self.timeout_seconds = timeout_seconds
        self._commands = settings.topics.topic(topic_of(SwitchCommand))
        self._histories: dict[str, timedelta | None] = {
            settings.topics.topic(SwitchDecision.topic): _ALL if with_past else _NOTHING,
            settings.topics.topic(topic_of(SwitchPrecheck)): _NOTHING,
        }
        self._registry = CollectorRegistry()
        self._received: list[Received] = []
        self._asked = b""
        self._wanted = ledgers
        self.ledgers: dict[str, SwitchDecision] = {}
        """By subject, the latest decision about a ledger, where it is wanted."""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._tail = stack.enter_context(Tail(self._connection, self._histories, CLIENT_ID))
            metrics = PublisherMetrics(self._registry)
            self._publisher = stack.enter_context(Publisher(self._connection, metrics, client_id=CLIENT_ID))
            self._catch_up()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _catch_up(self) -> None:
        """From here on nothing that is decided is missed."""
        until = time.monotonic() + _CONNECT_SECONDS
        while not self._tail.caught_up:
            self.poll(_POLL_SECONDS)
            problem = self._tail.problem
            if problem is not None and time.monotonic() > until:
                raise UserError(problem)

    @property
    def received(self) -> list[Received]:
        """Everything so far, in its order."""
        return self._received

    def record(self) -> SwitchRecord | None:
        """Where the switch stands, as last received; None when nothing was (needs `with_past`)."""
        return max(self.records(), key=lambda r: r.sequence, default=None)

    def records(self) -> list[SwitchRecord]:
        """Where the switch stood, in the order received."""
        return [r.data for r in self._received if isinstance(r.data, SwitchRecord)]

    def execute(self, command: SwitchCommand) -> CommandResult:
        """Send a command, and return what was decided about it.

        With `with_past`, one that was sent before under the same key is not sent again while its result is still known.

        Raises:
            NoDecisionError: nothing was decided in time.
            UserError: it could not be sent.
        """
        earlier = result_of(command, self._decisions(), earlier=True)
        if earlier is not None:
            return earlier
        self._asked = event_id(command).encode()
        self._send(command)
        self.wait_for(lambda: result_of(command, self._decisions()), self._no_decision(command), command)
        self._poll_aftermath()
        result = result_of(command, self._decisions())
        assert result is not None  # noqa: S101 - what was received stays received
        return result

    def wait_for(self, find: Callable[[], Value | None], otherwise: str, command: SwitchCommand) -> Value:
        """Poll until something is found among what was received.

        Raises:
            NoDecisionError: it is not found in time; says `otherwise`.
        """
        until = time.monotonic() + self.timeout_seconds
        while (found := find()) is None:
            if time.monotonic() > until:
                problem = f" ({self._tail.problem})" if self._tail.problem else ""
                raise NoDecisionError(f"{otherwise}{problem}", command)
            self.poll(_POLL_SECONDS)
        return found

    def _decisions(self) -> list[SwitchDecision]:
        return [r.data for r in self._received if isinstance(r.data, SwitchDecision)]

    def poll(self, timeout_seconds: float) -> bool:
        """Receive what comes next, awaiting it for so long at most; gives whether anything came."""
        records = self._tail.poll(timeout_seconds)
        if self._wanted is not None:
            self._keep_ledgers(records, self._wanted)
        read = (_received(record, self._cluster, self._asked) for record in records)
        self._received.extend(each for each in read if each is not None)
        return bool(records)

    def _keep_ledgers(self, records: Iterable[Record], wanted: Wanted) -> None:
        """Records of a key come in their order, so a later one takes the place of an earlier one."""
        for record in records:
            key = (record.key or b"").decode(errors="replace")
            if not key.startswith(f"{self._cluster}{_LEDGERS}"):
                continue
            decision = _decision(record)
            if decision is not None and wanted(decision):
                self.ledgers[key] = decision
            else:
                self.ledgers.pop(key, None)

    def _poll_aftermath(self) -> None:
        until = time.monotonic() + _LONGEST_AFTERMATH_SECONDS
        while self.poll(_AFTERMATH_SECONDS) and time.monotonic() < until:
            pass

    def _send(self, command: SwitchCommand) -> None:
        event = observation_event(command, id=event_id(command), source=SOURCE, time=datetime.now(UTC))
        before = self._published()
        self._publisher.publish(self._commands, command.cluster, event)
        self._publisher.flush(DELIVERY_TIMEOUT_SECONDS + _GRACE_SECONDS)
        if self._published() == before:
            raise UserError(
                f"the command could not be sent to {self._commands} ({self._why_unsent()}): check that Kafka at "
                f"{','.join(self._connection.servers())} is up, and that the topic exists (`headgate topics create`)."
            )

    def _published(self) -> float:
        return self._registry.get_sample_value("headgate_records_published_total", {"topic": self._commands}) or 0.0

    def _why_unsent(self) -> str:
        samples = (s for family in self._registry.collect() for s in family.samples)
        errors = [s.labels["error"] for s in samples if s.name == "headgate_records_unpublished_total" and s.value]
        return ", ".join(errors) or "no answer"

    def _no_decision(self, command: SwitchCommand) -> str:
        again = f"--idempotency-key {command.idempotency_key}"
        return (
            f"Nothing was decided within {self.timeout_seconds:g} s: the query (`headgate run` or `headgate decide`) "
            "may not be running. The command waits for it in Kafka; to ask for the answer later, give it again with "
            f"{again}, which does not repeat it."
        )


def _decision(record: Record) -> SwitchDecision | None:
    try:
        data = _READER.read(record.value).data if record.value is not None else None
    except BadRecordError:
        return None
    return data if isinstance(data, SwitchDecision) else None


def _received(record: Record, cluster: str, asked: bytes) -> Received | None:
    """What a record says about the cluster.

    There may be very many decisions about single ledgers: of those only what was asked for is read.
    """
    key = (record.key or b"").decode(errors="replace")
    if record.value is None or not (key == cluster or key.startswith(f"{cluster}/")):
        return None
    if key.startswith(f"{cluster}{_LEDGERS}") and asked not in record.value:
        return None
    try:
        event = _READER.read(record.value)
    except BadRecordError:
        return None  # the topics hold others' records too
    return Received(event.id, event.data) if event.data.cluster == cluster else None
