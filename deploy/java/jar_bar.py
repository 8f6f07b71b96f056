"""Fetches the jars that a part needs, with one progress bar if a person is watching."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from deploy.commands.console import SafeConsole
from deploy.java.jar_shares import ByteLines, OnBytes
from deploy.java.jars import Progress as Say
from deploy.java.jars import bytes_to_fetch, ensure_jars

_log = structlog.get_logger(__name__)


def log_progress(line: str) -> None:
    """Log a line of progress, for a process without a terminal screen of its own."""
    _log.info(line)


def fetched_jars(group: str, cache_dir: Path, say: Say) -> tuple[Path, ...]:
    """As `ensure_jars`; on a terminal with a bar, else with a line to `say` now and then.

    Raises:
        UserError: as `ensure_jars` does.
    """
    return fetched_groups([group], cache_dir, say)[0]


def fetched_groups(groups: Sequence[str], cache_dir: Path, say: Say) -> list[tuple[Path, ...]]:
    """The same of several groups, one after the other, under one bar; raises likewise."""
    missing = [bytes_to_fetch(group, cache_dir) for group in groups]
    with _bar(f"jars of {' and '.join(groups)}", say) as on_bytes:
        return [
            ensure_jars(group, cache_dir, progress=say, on_bytes=_of_all(on_bytes, sum(missing[:number]), sum(missing)))
            for number, group in enumerate(groups)
        ]


def _of_all(on_bytes: OnBytes, before: int, total: int) -> OnBytes:
    """Told of one group, tells of all: `before` bytes are of those that have been fetched already."""
    return lambda done, of_group: on_bytes(before + done, max(total, before + of_group))


@contextmanager
def _bar(what: str, say: Say) -> Iterator[OnBytes]:
    """A bar that appears with the first bytes; lines where nobody could see it."""
    if not sys.stderr.isatty():
        yield ByteLines(say, what)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=SafeConsole(stderr=True), transient=True)
    task = bar.add_task(f"fetching {what}, once", total=None)

    def on_bytes(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield on_bytes
    finally:
        bar.stop()
