"""The jars a part needs, fetched where a person may be watching: one bar with bytes and the time that is left."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from deploy.console import SafeConsole
from deploy.jar_shares import OnBytes
from deploy.jars import Progress as Say
from deploy.jars import ensure_jars


def fetched_jars(group: str, cache_dir: Path, say: Say) -> tuple[Path, ...]:
    """As `ensure_jars`; on a terminal with a bar, else with a line to `say` now and then.

    Raises:
        UserError: as `ensure_jars` does.
    """
    with _bar(group) as on_bytes:
        return ensure_jars(group, cache_dir, progress=say, on_bytes=on_bytes)


@contextmanager
def _bar(group: str) -> Iterator[OnBytes | None]:
    """A bar that appears with the first bytes; None where nobody could see it."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=SafeConsole(stderr=True), transient=True)
    task = bar.add_task(f"fetching jars of {group}, once", total=None)

    def on_bytes(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield on_bytes
    finally:
        bar.stop()
