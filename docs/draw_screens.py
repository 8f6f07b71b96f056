"""Makes the pictures of what a person sees, from real output: `make pictures`.

python -m docs.draw_screens demo docs/demo.svg          # runs `headgate demo` in a terminal of its own
python -m docs.draw_screens page docs/status-page.png   # a loop in virtual time, shown by Chromium
"""

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import dropwhile
from pathlib import Path

from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.text import Text

from connectors.http.server import MetricsServer
from deploy.demo.story import Phase
from policies.observations import Outcome
from policies.throttle.readings import ReplicaSizes, TopicUsage, VolumeUsage
from tests.connectors.exporter.loop import members
from tests.connectors.exporter.page.world import World, log_dirs

COLUMNS, ROWS = 104, 200
_CONTROL = re.compile(r"\x1b\[(\d*)([A-GJK])|\x1b\[\?\d+[hl]|\r|\n")

_SENTENCE = re.compile(r"\d\d:\d\d:\d\d UTC  ([a-z]+)")
_PHASES = tuple(f"{phase.title:8}  " for phase in Phase)


def draw_demo(picture: Path) -> None:
    """Run the demo in a terminal, and draw the screen that it leaves.

    Raises:
        SystemExit: the demo failed.
    """
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    screen = _show_screen(_run_in_terminal([sys.executable, "-m", "deploy.cli", "demo"]))
    for line in _choose_lines(map(Text.from_ansi, screen)):
        console.print(line)
    picture.write_text(console.export_svg(title="headgate demo", unique_id="demo"))


def _run_in_terminal(command: list[str]) -> str:
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(command[0], command, {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    output = b""
    while chunk := _read(terminal):
        output += chunk
    if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) != 0:
        raise SystemExit(f"the demo failed:\n{output.decode(errors='replace')}")
    return output.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux reports so that the program has ended
        return b""


def _show_screen(output: str) -> Iterator[str]:
    """Yield the lines that a terminal shows after this output; colours stay in them."""
    lines, row, start = [""], 0, 0
    for control in (*_CONTROL.finditer(output), None):
        lines[row] += output[start : control.start() if control else len(output)]
        if control is None:
            break
        start, count = control.end(), int(control[1] or 1)
        if control[0] == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif control[2] == "A":
            row = max(0, row - count)
        elif control[2] == "K":
            lines[row] = ""
    yield from lines


def _choose_lines(lines: Iterable[Text]) -> Iterator[Text]:
    """Yield each phase with its first sentence of each kind, and the bars at the end."""
    shown: set[str] = set()
    is_shown = False
    for line in dropwhile(lambda line: not line.plain.startswith(_PHASES), lines):
        if line.plain.startswith(_PHASES):
            shown, is_shown = set(), True
        elif (sentence := _SENTENCE.match(line.plain)) is not None:
            is_shown = sentence[1] not in shown
            shown.add(sentence[1])
        elif line.plain.startswith("\u2500"):  # the rule above the bars
            is_shown = True
        if is_shown:
            yield line
        if line.plain.startswith("produced"):
            return


def _topics() -> Iterator[ReplicaSizes]:
    """Yield the sizes of the topics on the volume that fills."""
    growing = (("orders", 400, 150, 0.7), ("clicks.raw", 200, 50, 0.24), ("headgate.audit", 5, 2, 0.01))
    topics = tuple(
        TopicUsage(topic=name, size_bytes=size * 10**9, bytes_per_second=rate * 1e6, share=share)
        for name, size, rate, share in growing
    )
    usage = VolumeUsage(log_dir="/data", kafka_bytes=700 * 10**9, other_bytes=40 * 10**9, topics=topics)
    yield ReplicaSizes(cluster="payments", outcome=Outcome.OK, broker=1, volumes=(usage,))


def draw_page(picture: Path) -> None:
    """Let Chromium show the page of a small fleet in trouble.

    Raises:
        SystemExit: there is no Chromium on this machine.
    """
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("Chromium is needed (Debian: apt-get install chromium-headless-shell)")
    world = World()
    world.now = datetime.now(UTC) - timedelta(minutes=61)
    free = 0.45
    for step in range(241):
        wanted = next(
            (p.in_force.wanted for p in world.picture().policies if p.in_force and p.cluster == "payments"), ""
        )
        free += 0.02 if 150 <= step < 160 else -0.0026 * float((wanted or "factor 1").split()[1])
        world.read(members(1, 2), log_dirs(free), log_dirs(0.5, broker=2), *(_topics() if step % 4 == 0 else ()))
        for number, name in enumerate(("billing", "clickstream", "ledger"), 1):
            world.read(members(1), log_dirs(0.4 + number / 10 - step / 1000, cluster=name), cluster=name)
        world.site.record()
        world.later(seconds=15)
    world.everything(with_fill=False)
    world.site.record()
    server = MetricsServer(CollectorRegistry(), host="127.0.0.1", port=0, healthy={}, ready={}, site=world.site.respond)
    with server, tempfile.TemporaryDirectory() as profile:
        options = (
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            "--window-size=1280,1900",
            "--force-device-scale-factor=1",
        )
        where = (f"--user-data-dir={profile}", f"--screenshot={picture.absolute()}", f"http://127.0.0.1:{server.port}/")
        subprocess.run([chromium, *options, *where], check=True, capture_output=True)


if __name__ == "__main__":
    {"demo": draw_demo, "page": draw_page}[sys.argv[1]](Path(sys.argv[2]))
