"""Hosts any registered policy: from records and stored state to output records and the state to store.

Pure, and the same for the live query and for replay. They differ only in where records come from and where states are
stored.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from policies.alerts import AlertBook, Condition, Sender, review
from policies.book import Book, Published, publish
from policies.decisions import Alert, Issuer
from policies.observations import Observation
from policies.pauses import PolicyPause, open_at
from policies.policy import HOST_ALERTS, POLICY_FAILED, READINGS_REFUSED, Policy, PolicyKind
from policies.registry import AUDIT, POLICIES
from policies.settings import PolicySettings
from policies.units import from_millis, to_millis
from policies.wire import MAX_AUDIT_BYTES, MAX_DECISION_BYTES, Output, audit_event, decision_event
from streaming.key_state import FORMAT, NO_STATE, KeyState, Refusal
from streaming.worker_memory import STATE_CACHE

REFUSED_MS = 600_000
"""An alert about refused readings is resolved after this long without another one."""
MOST_STATE_BYTES = 64 * 1024 * 1024
"""The largest state of one policy and cluster with its book, encoded; bounds of items keep real fleets far below."""
MOST_OUTPUT_BYTES = 64 * 1024 * 1024
"""The most bytes that one step may publish."""

_Key = tuple[Callable[[str, Any], Policy[Any]], str]
"""(`PolicyKind.build`, cluster)"""
_FIRST_BACK_OFF = timedelta(seconds=1)
_LONGEST_BACK_OFF = timedelta(minutes=5)
_MOST_DOUBLINGS = 10
_LONGEST_FAILURE = 300
_LONGEST_KEY = 80


class StepResult(NamedTuple):
    """The result of a step."""

    key_state: KeyState
    step: Published[Any]
    failure: str | None
    """The policy's exception and its place, or that a record is too large for its topic; None if the step succeeded.
    After a failure the policy's state is unchanged, and its observations are lost to it."""
    outputs: tuple[Output, ...]
    """The records to write."""


class TooLargeError(Exception):
    """A policy's decision is larger than its topic accepts, or its state or output exceeds its bound."""


class UnregisteredAlertError(Exception):
    """A policy raised an alert that its `PolicyKind` does not name."""


@dataclass(frozen=True)
class PolicyHost:
    """Steps policies by (policy, cluster).

    Args:
        settings: each policy's block; a policy without one runs with its defaults.
        clusters: the watched ones; None: every cluster that a reading names.
    """

    settings: Mapping[str, PolicySettings] = field(default_factory=dict)
    clusters: frozenset[str] | None = None
    _resolved: dict[tuple[str, str], tuple[PolicySettings, Sender]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _built: dict[_Key, tuple[PolicyPause | None, Policy[Any], Sender]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def step(
        self,
        policy: str,
        cluster: str,
        before: KeyState | None,
        observations: Sequence[Observation],
        now: datetime,
        pause: PolicyPause | None = None,
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> StepResult:
        """Step one policy for one cluster.

        If `now` lies before the last step, the last step's time is used instead.

        A policy that raises an exception fails for this key alone: its state stays as it was, an alert names the
        failure, and the key is stepped again when the next observations come, or after a back-off. While the policy is
        paused, it only watches.

        `refused` says, by alert, why other readings of this batch were refused.
        """
        kind = POLICIES[policy]
        key, quiet = (kind.build, cluster), open_at(pause, now)
        state = None if before is None else STATE_CACHE.decode(kind, cluster, before)
        if before is not None:
            now = max(now, from_millis(before.now_ms))
        try:
            hosted, sender = self._policy(kind, key, quiet)
            own_book = Book() if before is None else before.book
            if before is not None and before.recovered:
                # An alert that is not registered any more expires.
                names = {alert.name for alert in kind.alerts}
                recovered = own_book.alerts.recover(each for each in before.recovered if each.alert in names)
                own_book = msgspec.structs.replace(own_book, alerts=recovered)
            own_book, step = publish(own_book, hosted.step(state, observations, now), now, sender)
            encoded = msgspec.msgpack.encode(step.state)
            _require_room(len(encoded) + len(msgspec.msgpack.encode(own_book)))
            _require_registered(kind, step)
            records = tuple(_require_sizes(outputs(step, observations)))
        except Exception as error:
            self._built.pop(key, None)
            return self._fail(kind, cluster, before, now, _describe_failure(error))
        encoded_state = msgspec.Raw(encoded)
        STATE_CACHE.store(kind, cluster, encoded_state, step.state)
        if step.refused:
            refused = {**refused, READINGS_REFUSED: next(iter(step.refused.values()))}
        refusals = _recent_refusals(before, refused, now)
        book, alerts, review_at = self._review(kind, cluster, before, now, None, refusals)
        ends = [from_millis(each.at_ms + REFUSED_MS) for each in refusals]
        wake_ms = min((to_millis(at) for at in (step.wake_at, review_at, *ends) if at is not None), default=None)
        after = KeyState(
            FORMAT, kind.state_version, to_millis(now), wake_ms, encoded_state, alerts=book, refusals=refusals,
            book=own_book,
        )  # fmt: skip
        if alerts:
            records += tuple(outputs(Published(None, alerts, None)))
            step = replace(step, decisions=(*step.decisions, *alerts))
        return StepResult(after, step, None, records)

    def knows(self, cluster: str) -> bool:
        """Whether the cluster is watched."""
        return self.clusters is None or cluster in self.clusters

    def issuer(self, policy: str, cluster: str) -> Issuer:
        """The issuer of the policy's decisions about a cluster."""
        return self._resolve(POLICIES[policy], cluster)[1].issuer

    def _fail(self, kind: PolicyKind, cluster: str, before: KeyState | None, now: datetime, failure: str) -> StepResult:
        state = before.state if before is not None else NO_STATE
        version = before.state_version if before is not None else kind.state_version
        failures = 1 + (before.failures if before is not None else 0)
        refusals = () if before is None else before.refusals
        book, alerts, _ = self._review(kind, cluster, before, now, failure, refusals)
        back_off = min(_LONGEST_BACK_OFF, _FIRST_BACK_OFF * 2 ** min(failures - 1, _MOST_DOUBLINGS))
        wake_ms = to_millis(now + back_off)
        recovered, own_book = ((), Book()) if before is None else (before.recovered, before.book)
        after = KeyState(
            FORMAT, version, to_millis(now), wake_ms, state, failures, book, refusals=refusals, recovered=recovered,
            book=own_book,
        )  # fmt: skip
        step: Published[Any] = Published(None, alerts, now + back_off)
        return StepResult(after, step, failure, tuple(outputs(step)))

    def _review(
        self,
        kind: PolicyKind,
        cluster: str,
        before: KeyState | None,
        now: datetime,
        failure: str | None,
        refusals: Sequence[Refusal],
    ) -> tuple[AlertBook, tuple[Alert, ...], datetime | None]:
        """Review the alerts about the policy itself, not about its cluster."""
        book = before.alerts if before is not None else AlertBook()
        if before is not None and before.recovered and failure is None:
            book = book.recover(each for each in before.recovered if each.alert in HOST_ALERTS)
        if failure is None and not refusals and not book.entries and not book.recovered:
            return book, (), None
        labels = {"cluster": cluster, "policy": kind.name}
        conditions = {
            each.alert: Condition(
                each.alert, cluster, HOST_ALERTS[each.alert], "refused",
                f"policy {kind.name} does not take some readings of {cluster}, which are in the dead letters: "
                f"{each.why}", labels,
            )
            for each in refusals
        }  # fmt: skip
        if failure is not None:
            summary = f"policy {kind.name} fails for {cluster}, what it decided last stays in force: {failure}"
            severity = HOST_ALERTS[POLICY_FAILED]
            conditions[POLICY_FAILED] = Condition(POLICY_FAILED, cluster, severity, "exception", summary, labels)
        sender = replace(self._resolve(kind, cluster)[1], grace=timedelta(0))
        return review(book, conditions.values(), now, sender)

    def _resolve(self, kind: PolicyKind, cluster: str) -> tuple[PolicySettings, Sender]:
        """The cluster's settings and the sender of its alerts, made once: there may be a thousand overrides."""
        key = (kind.name, cluster)
        if key not in self._resolved:
            settings = (self.settings.get(kind.name) or kind.settings()).for_cluster(cluster)
            self._resolved[key] = settings, Sender.build(kind.name, cluster, settings)
        return self._resolved[key]

    def _policy(self, kind: PolicyKind, key: _Key, quiet: PolicyPause | None) -> tuple[Policy[Any], Sender]:
        """Return the policy with the cluster's settings, and its sender; built again when a pause begins or ends."""
        built = self._built.get(key)
        if built is None or built[0] != quiet:
            settings, sender = self._resolve(kind, key[1])
            if quiet is not None:
                settings = settings.while_quiet(quiet)
                sender = Sender.build(kind.name, key[1], settings)
            self._built[key] = built = (quiet, kind.build(key[1], settings), sender)
        return built[1:]


def outputs(step: Published[Any], seen: Sequence[Observation] = ()) -> Iterator[Output]:
    """The records of a step: decisions to their topics; decisions, notes and their evidence to the audit."""
    for decision in step.decisions:
        yield Output(decision.topic, decision.record_key(), decision_event(decision))
    audited = (*step.decisions, *step.notes)
    # A step may see and decide thousands, and all of them may rest on the same few observations.
    places = {each.id: n for n, each in enumerate(seen)}
    encoded: dict[str, tuple[int, Any]] = {}
    for decision in audited:
        named = [seen[n] for n in sorted(places[id_] for id_ in decision.evidence if id_ in places)]
        yield Output(AUDIT, decision.cluster, audit_event(decision, named, encoded))


def _require_registered(kind: PolicyKind, step: Published[Any]) -> None:
    """Refuse an alert that has no meaning in the references and no rule in Alertmanager."""
    named = {each.alert for each in step.decisions if isinstance(each, Alert)}
    for name in sorted(named.difference(alert.name for alert in kind.alerts)) if named else ():
        raise UnregisteredAlertError(f"alert {name} is not registered: add it to `alerts` of its PolicyKind")


def _require_room(state_bytes: int) -> None:
    if state_bytes > MOST_STATE_BYTES:
        raise TooLargeError(f"its state would have {state_bytes} bytes, more than {MOST_STATE_BYTES}")


def _require_sizes(records: Iterable[Output]) -> Iterator[Output]:
    """Refuse a record that its topic would refuse: it would end the query at each start. Refuse too many, as well."""
    room_bytes = MOST_OUTPUT_BYTES
    for record in records:
        topic, key, value = record
        most = MAX_AUDIT_BYTES if topic == AUDIT else MAX_DECISION_BYTES
        if len(value) > most:
            raise TooLargeError(
                f"a record of {topic} about {key[:_LONGEST_KEY]} has {len(value)} bytes, more than {most}"
            )
        room_bytes -= len(value)
        if room_bytes < 0:
            raise TooLargeError(f"one step would publish more than {MOST_OUTPUT_BYTES} bytes")
        yield record


def _recent_refusals(before: KeyState | None, refused: Mapping[str, str], now: datetime) -> tuple[Refusal, ...]:
    """The refusals of this batch, and those of earlier batches whose alert is to stay."""
    recent = {each.alert: each for each in (before.refusals if before is not None else ())}
    recent |= {alert: Refusal(alert, to_millis(now), why) for alert, why in refused.items()}
    return tuple(each for _, each in sorted(recent.items()) if to_millis(now) < each.at_ms + REFUSED_MS)


def _describe_failure(error: Exception) -> str:
    """The exception and its place, without the values of variables."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"[:_LONGEST_FAILURE]
