"""The command `headgate replay`: reads recorded events and prints decisions, as JSON lines or as a timeline."""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deploy.commands.console import SafeConsole
from deploy.settings.application import Settings
from deploy.whatif import recordings
from deploy.whatif.timeline import AGAINST, SETTINGS, lanes, timeline_view
from policies.decisions import Decision
from policies.errors import UserError
from policies.registry import decided_topics
from policies.units import counted
from policies.wire import decision_event
from streaming.recording import Recording
from streaming.replay import Recorded, Replay, differences, replay_batches
from streaming.transition import KeyTransition


@dataclass(frozen=True)
class ReplayRequest:
    """The options of the command."""

    settings: Settings
    files: Sequence[Path] = ()
    """Files with recorded events."""
    until: datetime | None = None
    """After the last event, the clock runs on to this time."""
    against: Settings | None = None
    """Other settings, whose decisions are compared."""
    since: datetime | None = None
    """Without files, the beginning of the range in the topics."""
    to: datetime | None = None
    """The end of the range; None for now."""
    in_batches: bool = False
    """Take the events in the batches of the live query, at the times of these."""

    def sides(self) -> dict[str, Settings]:
        """Return the settings to decide with, by side."""
        return {SETTINGS: self.settings} | ({} if self.against is None else {AGAINST: self.against})


def replay_to_stdout(request: ReplayRequest, *, timeline: bool = False) -> None:
    """Replay files, or the observed topics, and print decisions or differences.

    Args:
        timeline: print a table for people instead of JSON lines.

    Raises:
        UserError: there is nothing to replay, it cannot be read, or no event in it is valid.
    """
    if bool(request.files) == (request.since is not None):
        raise UserError("give either files with recorded events, or --from to read the observed topics")
    if request.to is not None and request.since is None:
        raise UserError("--to: works only with --from; with files, use --until")
    if request.since is not None and request.to is not None and request.to <= request.since:
        raise UserError("--to: must lie after --from")
    if request.in_batches and request.until is not None:
        raise UserError("--until: a run with --batches ends with its last batch")
    if timeline:
        _print_timeline(request)
    elif request.in_batches:
        run = _read_run(request)
        if request.against is None:
            decided = decided_topics()
            outputs = (output for turn in _replay_transitions(request.settings, run) for output in turn.outputs)
            _print_lines(output.value.decode() for output in outputs if output.topic in decided)
        else:
            _print_lines(map(json.dumps, differences(*(_live_decisions(s, run) for s in request.sides().values()))))
        _print_errors(run.flaws)
    elif request.against is None:
        replay = Replay(request.settings.policy_host())
        _print_lines(decision_event(decision).decode() for decision in replay.run(_read_events(request), request.until))
        _print_rejected([replay])
    else:
        ours, theirs = _decide_sides(request).values()
        _print_lines(map(json.dumps, differences(ours, theirs)))


def _print_timeline(request: ReplayRequest) -> None:
    if request.in_batches:
        run = _read_run(request)
        sides = {side: list(_live_decisions(each, run)) for side, each in request.sides().items()}
        _print_errors(run.flaws)
    else:
        sides = _decide_sides(request)
    SafeConsole(highlight=False).print(timeline_view(lanes(sides, request.until)))


def _decide_sides(request: ReplayRequest) -> dict[str, list[Decision]]:
    """Return the decisions of each side over the same events."""
    records = list(_read_events(request))
    replays = {side: Replay(settings.policy_host()) for side, settings in request.sides().items()}
    decided = {side: list(replay.run(records, request.until)) for side, replay in replays.items()}
    _print_rejected(replays.values())
    return decided


def _read_events(request: ReplayRequest) -> Iterator[Recorded]:
    if request.since is None:
        return recordings.read_events_of_files(request.files, request.settings.topics.prefix)
    return recordings.read_events_of_topics(request.settings, request.since, request.to or datetime.now(UTC))


def _read_run(request: ReplayRequest) -> Recording:
    if request.since is None:
        return recordings.read_run_of_files(request.files, request.settings.topics.prefix)
    return recordings.read_run_of_topics(request.settings, request.since, request.to or datetime.now(UTC))


def _live_decisions(settings: Settings, run: Recording) -> Iterator[Decision]:
    for turn in _replay_transitions(settings, run):
        yield from turn.decisions


def _replay_transitions(settings: Settings, run: Recording) -> Iterator[KeyTransition]:
    return replay_batches(settings.policy_host(), run.prefix, run.batches)


def _print_rejected(replays: Collection[Replay]) -> None:
    """Print the events that a side rejects: not all settings name the same clusters.

    Raises:
        UserError: all events were rejected.
    """
    rejected = {f"{place}: {error}": None for replay in replays for place, error in replay.rejected}
    if rejected and not any(replay.taken for replay in replays):
        raise UserError(f"no event is valid, of {counted(len(rejected), 'event')}; the first: {next(iter(rejected))}")
    _print_errors(rejected or ([] if any(replay.taken for replay in replays) else ["there is no event to replay"]))


def _print_errors(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)  # noqa: T201


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
