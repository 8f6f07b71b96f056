"""`headgate replay`: recorded events in, decisions out. Standard output holds nothing but JSON lines."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from connectors.kafka.history import read_history
from deploy.settings import Settings
from policies.errors import UserError
from policies.registry import observed_topics
from policies.wire import decision_event
from streaming.replay import Recorded, Replay, differences


def replay_to_stdout(
    settings: Settings,
    files: Sequence[Path],
    *,
    until: datetime | None,
    against: Settings | None,
    since: datetime | None,
    to: datetime | None,
) -> None:
    """Replay files, or the observed topics from `since` on, and print decisions or differences.

    Raises:
        UserError: there is nothing to replay, or it cannot be read.
    """
    if bool(files) == (since is not None):
        raise UserError("give either files with recorded events, or --from to read the observed topics")
    if to is not None and since is None:
        raise UserError("--to: goes with --from; with files there is --until")
    records = _of_files(files) if since is None else _of_topics(settings, since, to or datetime.now(UTC))
    if against is None:
        _print(_decisions(settings, records, until))
    else:
        _print(_differences(settings, against, list(records), until))


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
    for place, error in replay.rejected:
        print(f"{place}: {error}", file=sys.stderr)  # noqa: T201


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _of_files(files: Sequence[Path]) -> Iterator[Recorded]:
    for file in files:
        try:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield Recorded(f"{file}:{number}", line.strip())
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror})") from None


def _of_topics(settings: Settings, since: datetime, to: datetime) -> Iterator[Recorded]:
    topics = [settings.topics.topic(name) for name in observed_topics()]
    for record in read_history(settings.loop_kafka(), topics, since, to):
        name = record.place.split("/")[0].removeprefix(f"{settings.topics.prefix}.")
        yield Recorded(record.place, record.value, record.appended_at, name)
