"""Hosts any registered policy: from records and stored state to output records and the state to store.

Pure, and the same for the live query and for replay. They differ only in where records come from and where states are
stored.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from policies.alerts import AlertBook, Condition, Sender, review
from policies.book import Published, publish
from policies.decisions import Alert, Issuer
from policies.observations import Observation
from policies.pauses import PolicyPause, open_at
from policies.policy import HOST_ALERTS, POLICY_FAILED, READINGS_REFUSED, Policy, PolicyKind
from policies.registry import AUDIT, POLICIES
from policies.settings import PolicySettings
from policies.units import from_millis, to_millis
from policies.wire import MAX_AUDIT_BYTES, MAX_DECISION_BYTES, Output, audit_event, decision_event
from streaming.key_state import FORMAT, NEVER_STEPPED, KeyState, Refusal
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


class StepRefusedError(Exception):
    """A decision is too large for its topic, state or output exceed their bound, or an alert is not registered."""


@dataclass(frozen=True)
class PolicyHost:
    """Steps policies by (policy, cluster). One without a block of settings has its defaults; clusters None: all."""

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
        kind, previous = POLICIES[policy], before or NEVER_STEPPED
        key, state = (kind.build, cluster), STATE_CACHE.decode(kind, cluster, previous)
        now = max(now, from_millis(previous.now_ms))
        try:
            hosted, sender = self._policy(kind, key, open_at(pause, now))
            levels = hosted.step(state, observations, now)
            if levels.refused:
                refused = {**refused, READINGS_REFUSED: next(iter(levels.refused.values()))}
            recent = {each.alert: each for each in previous.refusals}
            recent |= {alert: Refusal(alert, to_millis(now), why) for alert, why in refused.items()}
            refusals = tuple(each for _, each in sorted(recent.items()) if to_millis(now) < each.at_ms + REFUSED_MS)
            levels = replace(
                levels,
                conditions=chain(levels.conditions, _report_refusals(kind, cluster, refusals)),
                due_ms=chain(levels.due_ms, (each.at_ms + REFUSED_MS for each in refusals)),
            )
            book, step = publish(previous.book, levels, now, sender)
            encoded = msgspec.Raw(msgspec.msgpack.encode(step.state))
            _require_bounds(kind, step, len(encoded) + len(msgspec.msgpack.encode(book)))
            records = tuple(_require_sizes(outputs(step, observations)))
        except Exception as error:
            self._built.pop(key, None)
            return self._fail(kind, cluster, previous, now, error)
        STATE_CACHE.store(kind, cluster, encoded, step.state)
        wake_ms = None if step.wake_at is None else to_millis(step.wake_at)
        after = KeyState(
            FORMAT, kind.state_version, to_millis(now), wake_ms, encoded, refusals=refusals, book=book
        )  # fmt: skip
        return StepResult(after, step, None, records)

    def knows(self, cluster: str) -> bool:
        """Whether the cluster is watched."""
        return self.clusters is None or cluster in self.clusters

    def issuer(self, policy: str, cluster: str) -> Issuer:
        """The issuer of the policy's decisions about a cluster."""
        return self._resolve(POLICIES[policy], cluster)[1].issuer

    def _fail(self, kind: PolicyKind, cluster: str, before: KeyState, now: datetime, error: Exception) -> StepResult:
        """Keep the state and what the policy has published, and report the failure; retry after a back-off.

        The exception and its place are named, without the values of variables.
        """
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"[:_LONGEST_FAILURE]
        summary = f"policy {kind.name} fails for {cluster}, what it decided last stays in force: {failure}"
        failed = _condition(kind, cluster, POLICY_FAILED, "exception", summary)
        known, own = before.book.alerts, [each for each in before.book.alerts.entries if each.alert in HOST_ALERTS]
        conditions, sender = (
            [*_report_refusals(kind, cluster, before.refusals), failed],
            self._resolve(kind, cluster)[1],
        )
        alerts, raised, _ = review(AlertBook(tuple(own), known.sequence), conditions, now, sender)
        entries = (*(each for each in known.entries if each.alert not in HOST_ALERTS), *alerts.entries)
        alerts = msgspec.structs.replace(known, entries=entries, sequence=alerts.sequence)
        wake_at = now + min(_LONGEST_BACK_OFF, _FIRST_BACK_OFF * 2 ** min(before.failures, _MOST_DOUBLINGS))
        after = msgspec.structs.replace(
            before,
            state_version=before.state_version or kind.state_version,
            now_ms=to_millis(now),
            wake_ms=to_millis(wake_at),
            failures=before.failures + 1,
            book=msgspec.structs.replace(before.book, alerts=alerts),
        )
        step: Published[Any] = Published(None, raised, wake_at)
        return StepResult(after, step, failure, tuple(outputs(step)))

    def _resolve(self, kind: PolicyKind, cluster: str) -> tuple[PolicySettings, Sender]:
        """The cluster's settings and the sender of its alerts, made once: there may be a thousand overrides."""
        key = (kind.name, cluster)
        if key not in self._resolved:
            settings = (self.settings.get(kind.name) or kind.settings()).for_cluster(cluster)
            self._resolved[key] = settings, Sender.build(kind.name, cluster, settings, kind.many)
        return self._resolved[key]

    def _policy(self, kind: PolicyKind, key: _Key, quiet: PolicyPause | None) -> tuple[Policy[Any], Sender]:
        """Return the policy with the cluster's settings, and its sender; built again when a pause begins or ends."""
        built = self._built.get(key)
        if built is None or built[0] != quiet:
            settings, sender = self._resolve(kind, key[1])
            if quiet is not None:
                settings = settings.while_quiet(quiet)
                sender = Sender.build(kind.name, key[1], settings, kind.many)
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


def _require_bounds(kind: PolicyKind, step: Published[Any], state_bytes: int) -> None:
    """Refuse too large a state, and an alert that has no meaning in the references and no rule in Alertmanager."""
    if state_bytes > MOST_STATE_BYTES:
        raise StepRefusedError(f"its state would have {state_bytes} bytes, more than {MOST_STATE_BYTES}")
    named = {each.alert for each in step.decisions if isinstance(each, Alert)}
    for name in sorted(named.difference(HOST_ALERTS, (alert.name for alert in kind.alerts))) if named else ():
        raise StepRefusedError(f"alert {name} is not registered: add it to `alerts` of its PolicyKind")


def _require_sizes(records: Iterable[Output]) -> Iterator[Output]:
    """Refuse a record that its topic would refuse: it would end the query at each start. Refuse too many, as well."""
    room_bytes = MOST_OUTPUT_BYTES
    for record in records:
        topic, key, value = record
        most = MAX_AUDIT_BYTES if topic == AUDIT else MAX_DECISION_BYTES
        if len(value) > most:
            raise StepRefusedError(
                f"a record of {topic} about {key[:_LONGEST_KEY]} has {len(value)} bytes, more than {most}"
            )
        room_bytes -= len(value)
        if room_bytes < 0:
            raise StepRefusedError(f"one step would publish more than {MOST_OUTPUT_BYTES} bytes")
        yield record


def _report_refusals(kind: PolicyKind, cluster: str, refusals: Iterable[Refusal]) -> Iterator[Condition]:
    for each in refusals:
        what = f"policy {kind.name} does not take some readings of {cluster}, which are in the dead letters: {each.why}"
        yield _condition(kind, cluster, each.alert, "refused", what)


def _condition(kind: PolicyKind, cluster: str, alert: str, reason: str, summary: str) -> Condition:
    """A condition of the policy itself, not of its cluster."""
    labels = {"cluster": cluster, "policy": kind.name}
    return Condition(alert, cluster, HOST_ALERTS[alert], reason, summary, labels)
