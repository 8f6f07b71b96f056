"""Folds the actuators' reports into the values that are set on the watched systems, with one sentence for people. Pure.

A decision asks for a value. Whether an actuator has set it is a fact of its own: each actuator reports the result of
each attempt, and this module folds the last report of each result, in any order. So a value that was set a week ago
and a failure of this minute are both known. Page, `status`, `explain`, API, metrics and alerts use the same fold.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter, itemgetter

from policies.decisions import Decision, Mode, Standing, has_expired
from policies.observations import ReportedEffect, ReportResult
from policies.units import counted, format_instant, name_some

_MOST_NAMED = 3
"""A sentence names this many targets, and counts the others."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report of an actuator."""

    policy: str
    cluster: str
    subject: str
    """The subject of the decision that was carried out, or of a part of it, such as an entity of the cluster."""
    at: datetime
    effect: ReportedEffect


@dataclass(frozen=True, slots=True)
class Effect:
    """The known state of one target of an actuator, such as a quota's entity or a bookie."""

    target: str
    """Empty: the whole cluster, because the actuator cannot even read it."""
    by: str
    subject: str = ""
    value: str | None = None
    """The value that is set, in words; None: no report says so."""
    number: float | None = None
    """The same as a number, in bytes a second for quotas; None if it is not a number."""
    is_held: bool = False
    """Whether Headgate has set the value. It has not, once it put the original back."""
    since: datetime | None = None
    """When it was set; if that report is no longer kept, when it was found so."""
    confirmed_brokers: int | None = None
    """Number of brokers that showed it; None: not checked one by one."""
    broker_count: int | None = None
    wanted: str | None = None
    """The value that the actuator tries, or refuses, to set; None: nothing else is wanted."""
    failing_since: datetime | None = None
    refused_since: datetime | None = None
    detail: str | None = None
    """Why it fails or is refused."""


class EffectBook:
    """The effects of all actuators, from their reports in any order."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], dict[tuple[str, ReportResult], Report]] = {}
        """The last report of each target and result, by (policy, cluster); of repeated failures the first."""

    def fold(self, report: Report) -> None:
        """Fold one report; a late or repeated one changes nothing."""
        known = self._reports.setdefault((report.policy, report.cluster), {})
        target, result = report.effect.target, report.effect.result
        before = known.get((target, result))
        if before is not None and before.at >= report.at:
            return
        of_target = (known[target, kind] for kind in ReportResult if (target, kind) in known)
        is_failure = result in (ReportResult.FAILED, ReportResult.REFUSED)
        if is_failure and before is not None and all(other.at <= before.at for other in of_target):
            report = replace(report, at=before.at)  # it began with the first one
        known[target, result] = report

    def drop(self, report: Report) -> None:
        """Drop a report whose record was deleted; a newer one about the same target stays."""
        known = self._reports.get((report.policy, report.cluster), {})
        key = (report.effect.target, report.effect.result)
        if key in known and known[key].at <= report.at:
            del known[key]
        if not known:
            self._reports.pop((report.policy, report.cluster), None)

    def reported(self) -> Iterable[tuple[str, str]]:
        """Return each policy and cluster with a report."""
        return self._reports.keys()

    def effects(self, policy: str, cluster: str) -> tuple[Effect, ...]:
        """Return the effects on a cluster by target, without those that newer reports have made void."""
        known = sorted(self._reports.get((policy, cluster), {}).items(), key=itemgetter(0))
        newest_done = max((report.at for (_, kind), report in known if kind in _DONE), default=None)
        found = (
            _fold_target(target, {kind: report for (_, kind), report in of_target}, newest_done)
            for target, of_target in groupby(known, key=lambda item: item[0][0])
        )
        return tuple(effect for effect in found if effect is not None)


_DONE = (ReportResult.APPLIED, ReportResult.UNCHANGED)


def _fold_target(target: str, reports: Mapping[ReportResult, Report], newest_done: datetime | None) -> Effect | None:
    last = max(reports.values(), key=attrgetter("at"))
    effect = Effect(target, last.effect.by, last.subject)
    done = max((reports[kind] for kind in _DONE if kind in reports), key=attrgetter("at"), default=None)
    if done is not None:
        was_set = reports.get(ReportResult.APPLIED, done)
        since = was_set.at if was_set.effect.value == done.effect.value else done.at
        effect = _set_value(effect, done.effect, since)
    if last is done:
        return effect
    if not target and newest_done is not None and last.at < newest_done:
        return None  # the cluster could not be read, and has been since
    effect = replace(effect, wanted=last.effect.value, detail=last.effect.detail)
    if last.effect.result is ReportResult.FAILED:
        return replace(effect, failing_since=last.at)
    return replace(effect, refused_since=last.at)


def _set_value(effect: Effect, found: ReportedEffect, since: datetime | None) -> Effect:
    return replace(
        effect,
        value=found.value,
        number=found.number,
        is_held=found.is_held,
        since=since,
        confirmed_brokers=found.confirmed_brokers,
        broker_count=found.broker_count,
    )


@dataclass(frozen=True, slots=True)
class InForce:
    """The values that one policy wants for one cluster, and the values that are set there."""

    policy: str
    cluster: str
    wanted: str | None
    """The wanted values, from the decisions in force; None: no decision asks for one."""
    effects: tuple[Effect, ...]
    pause: Standing | None
    """The heartbeat that names a pause; None: the policy acts."""
    is_shadow: bool = False
    needs: str | None = None
    """The setting that would make an actuator; None: there is one, or it is not known."""

    @property
    def failing_since(self) -> datetime | None:
        """The time since which an actuator fails; None: all succeed."""
        return min((e.failing_since for e in self.effects if e.failing_since is not None), default=None)

    @property
    def sentence(self) -> str:
        """One line for people."""
        wanted = [] if self.wanted is None else [f"wanted: {self.wanted}"]
        return "; ".join([*self._paused(), *wanted, *self._set()])

    def describe_set(self) -> str:
        """Return the same line without the wanted values, for an alert."""
        return "; ".join([*self._paused(), *self._set()])

    def _paused(self) -> Iterator[str]:
        if self.pause is None or self.pause.quiet_until is None:
            return
        kept = "" if self.pause.pause_keeps else ", what was set is taken back"
        who, why = self.pause.paused_by or "nobody named", self.pause.pause_reason or "no reason given"
        yield f"PAUSED until {_clock(self.pause.quiet_until)} by {who} ({why}){kept}"

    def _set(self) -> Iterator[str]:
        same_value: dict[tuple[str | None, str], list[Effect]] = {}
        for effect in self.effects:
            if effect.is_held:
                same_value.setdefault((effect.value, effect.by), []).append(effect)
        yield from (f"set: {_describe_value(same)}" for same in same_value.values())
        if not same_value:
            yield self._describe_nothing()
        failing = [effect for effect in self.effects if effect.failing_since is not None]
        if failing:
            yield f"FAILING since {_clock(min(e.failing_since for e in failing if e.failing_since))}: {_why(failing)}"
        refused = [effect for effect in self.effects if effect.refused_since is not None]
        if refused:
            yield f"not set: {_why(refused)}"

    def _describe_nothing(self) -> str:
        original = [effect for effect in self.effects if effect.value is not None]
        if original:
            return f"set: nothing of Headgate's ({_describe_value(original[:1])})"
        if self.effects:
            return "set: nothing"
        if self.is_shadow:
            return "set: nothing, in shadow mode"
        if self.needs is not None:
            return f"nothing is set: no actuator is configured, for which the cluster needs {self.needs}"
        return "nothing is set yet: no process that acts (`headgate act` or `run`) has reported"


def judge_in_force(
    policy: str,
    cluster: str,
    decisions: Sequence[Decision],
    effects: tuple[Effect, ...],
    heartbeat: Standing | None,
    now: datetime,
    needs: str | None = None,
) -> InForce | None:
    """Join the wanted values, the set values and the pause of a policy; None if there are none of them.

    An order that has expired by `now` asks for nothing any more.
    """
    decisions = [each for each in decisions if each.is_kept_up or not has_expired(each, now)]
    wanted = {decision.subject: decision.wanted() for decision in decisions}
    own = (
        _set_value(Effect(found.target, found.by, decision.subject), found, found.since)
        for decision in decisions
        if (found := decision.carried_out()) is not None
    )
    effects = (*(effect for effect in effects if _counts(effect, wanted)), *own)
    asked = [text for text in wanted.values() if text is not None]
    quiet_until = None if heartbeat is None else heartbeat.quiet_until
    pause = heartbeat if quiet_until is not None and quiet_until > now else None
    if not asked and not effects and pause is None:
        return None
    is_shadow = pause is None and any(decision.mode is Mode.SHADOW for decision in decisions)
    joined = name_some(list(dict.fromkeys(asked)), _MOST_NAMED) or None
    return InForce(policy, cluster, joined, effects, pause, is_shadow, needs)


def _counts(effect: Effect, wanted: Mapping[str, str | None]) -> bool:
    """Return whether an effect still counts: an old unload does not, nor a bookie that somebody has moved since."""
    if effect.subject in wanted:
        return wanted[effect.subject] is not None
    parts = effect.subject.split("/")
    if len(parts) == 1:  # the cluster
        return effect.is_held or any(wanted.values())
    return effect.is_held or any(wanted.get("/".join(parts[:count])) for count in range(1, len(parts)))


def _describe_value(same: Sequence[Effect]) -> str:
    first = same[0]
    since = max((e.since for e in same if e.since is not None), default=None)
    confirmed = min((e.confirmed_brokers for e in same if e.confirmed_brokers is not None), default=None)
    began = f" since {_clock(since)}" if since is not None else ""
    text = f"{first.value} for {_name(same)}{began} by {first.by}"
    if confirmed is None or first.broker_count is None:
        return text
    return f"{text}, confirmed on {confirmed} of {counted(first.broker_count, 'broker')}"


def _name(effects: Sequence[Effect]) -> str:
    return name_some([effect.target or "the whole cluster" for effect in effects], _MOST_NAMED)


def _why(effects: Sequence[Effect]) -> str:
    values = {effect.wanted for effect in effects}
    wanted = f"{effects[0].wanted} for " if len(values) == 1 and effects[0].wanted else ""
    details = list(dict.fromkeys(effect.detail for effect in effects if effect.detail))
    return f"{wanted}{_name(effects)}" + (f" ({'; '.join(details[:_MOST_NAMED])})" if details else "")


def _clock(at: datetime) -> str:
    return f"{format_instant(at)[:19].replace('T', ' ')} UTC"


def report_key(event: bytes) -> str:
    """Return the record key of a report on the compacted topic: the last report of each result is kept."""
    found = json.loads(event)
    return f"{found['source'].rpartition('/')[2]}/{found['subject']}/{found['data'].get('outcome', '')}"
