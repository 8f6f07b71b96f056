"""`headgate replay`: recorded events in, decisions out. Standard output holds nothing but JSON lines."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from deploy import recordings
from deploy.settings import Settings
from policies.decisions import Decision
from policies.errors import UserError
from policies.registry import decided_topics
from policies.wire import decision_event
from streaming.recording import Recording
from streaming.replay import Recorded, Replay, differences, replay_batches


def replay_to_stdout(
    settings: Settings,
    files: Sequence[Path],
    *,
    until: datetime | None,
    against: Settings | None,
    since: datetime | None,
    to: datetime | None,
    in_batches: bool = False,
) -> None:
    """Replay files, or the observed topics from `since` on, and print decisions or differences.

    Args:
        settings: to decide with.
        files: with recorded events.
        until: the clock runs on to then after the last event.
        against: other settings, to print differences to.
        since: without files, where to begin in the topics.
        to: where to end; None: now.
        in_batches: take the events in the batches in which the query took them, at the times of these.

    Raises:
        UserError: there is nothing to replay, or it cannot be read.
    """
    if bool(files) == (since is not None):
        raise UserError("give either files with recorded events, or --from to read the observed topics")
    if to is not None and since is None:
        raise UserError("--to: goes with --from; with files there is --until")
    end = to or datetime.now(UTC)
    if in_batches:
        if until is not None:
            raise UserError("--until: a run with --batches ends with its last batch")
        run = _run(settings, files, since, end)
        _print(_as_live(settings, run) if against is None else _differences_as_live(settings, against, run))
        _complain(run.flaws)
    elif against is None:
        _print(_decisions(settings, _events(settings, files, since, end), until))
    else:
        _print(_differences(settings, against, list(_events(settings, files, since, end)), until))


def _events(settings: Settings, files: Sequence[Path], since: datetime | None, to: datetime) -> Iterator[Recorded]:
    if since is None:
        return recordings.events_of_files(files, settings.topics.prefix)
    return recordings.events_of_topics(settings, since, to)


def _run(settings: Settings, files: Sequence[Path], since: datetime | None, to: datetime) -> Recording:
    if since is None:
        return recordings.run_of_files(files, settings.topics.prefix)
    return recordings.run_of_topics(settings, since, to)


def _as_live(settings: Settings, run: Recording) -> Iterator[str]:
    """All that the query wrote to the decided topics."""
    decided = decided_topics()
    for turn in replay_batches(settings.policy_host(), settings.topics.prefix, run.batches):
        yield from (output.value.decode() for output in turn.outputs if output.topic in decided)


def _differences_as_live(settings: Settings, against: Settings, run: Recording) -> Iterator[str]:
    ours, theirs = (_decided_as_live(each, settings.topics.prefix, run) for each in (settings, against))
    yield from map(json.dumps, differences(ours, theirs))


def _decided_as_live(settings: Settings, prefix: str, run: Recording) -> Iterator[Decision]:
    for turn in replay_batches(settings.policy_host(), prefix, run.batches):
        yield from turn.decisions


def _decisions(settings: Settings, records: Iterable[Recorded], until: datetime | None) -> Iterator[str]:
    replay = Replay(settings.policy_host())
    yield from (decision_event(decision).decode() for decision in replay.run(records, until))
    _print_rejected(replay)


def _differences(
    settings: Settings, against: Settings, records: Sequence[Recorded], until: datetime | None
) -> Iterator[str]:
    ours, theirs = (Replay(s.policy_host()) for s in (settings, against))
    yield from map(json.dumps, differences(ours.run(records, until), theirs.run(records, until)))
    _print_rejected(ours)  # both reject the same


def _print_rejected(replay: Replay) -> None:
    _complain(f"{place}: {error}" for place, error in replay.rejected)


def _complain(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)  # noqa: T201


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
