"""`headgate doctor`: connects to everything the settings name, checks it, and changes nothing."""

import json
import os
import shlex
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count, groupby
from pathlib import Path
from queue import Empty, SimpleQueue

import httpx
import typer
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import CollectorRegistry
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.status import Status
from rich.table import Table
from rich.text import Text

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.collection import PollMetrics, Probe, ProbeResult, rank, whole_line
from connectors.component import Component
from connectors.http.access import require_free_port
from connectors.kafka.admin import LOOP as LOOP_KAFKA
from connectors.kafka.admin import loop_probes
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import RUN_PARTS, TopicSettings, rights_of
from connectors.membership import describe_loops, find_deciders
from connectors.policy_io import CollectorContext, ProbeContext
from connectors.registration import PolicyConnectors, acts_on, connectors_of, load_hook
from deploy.console.terminal import SafeConsole, complete_commands
from deploy.java.jars import missing_jars, spark_group
from deploy.java.jvm import find_java
from deploy.processes.parts import Connections
from deploy.query.checkpoint import Checkpoint, require_fitting
from deploy.settings.application import Settings
from policies.observations import Outcome, Reading
from policies.registry import POLICIES
from policies.units import ClosedEnum, UserError, counted, human_bytes, name_some

# Runs all checks in parallel, each with a time limit, and classifies them: works, slow, not permitted, failed.

LIMIT_SECONDS = 20.0
"""Each client has a shorter timeout; this limit is for calls that hang nevertheless, such as name resolution."""
SLOW_SECONDS = 1.0


class Verdict(ClosedEnum):
    """The verdict on a check, as shown first."""

    WORKS = "works", "It was read, or is permitted."
    SLOW = "slow", "It works, but took longer than a second."
    OPEN = "open", "It works, and others may do more there than they should; see the detail."
    NOT_ALLOWED = "not allowed", "The login, or a right, is refused."
    TOO_OLD = "too old", "This version does not support it."
    NO_ANSWER = "no answer", "No answer, or not in time."
    WRONG = "wrong", "Another problem; see the detail."


_VERDICTS = {
    Outcome.OK: Verdict.WORKS,
    Outcome.UNAUTHORIZED: Verdict.NOT_ALLOWED,
    Outcome.UNSUPPORTED: Verdict.TOO_OLD,
    **dict.fromkeys((Outcome.TIMEOUT, Outcome.UNREACHABLE), Verdict.NO_ANSWER),
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check."""

    system: str
    asked: str
    verdict: Verdict
    milliseconds: int
    detail: str
    remedies: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to fix."""
        return self.verdict in (Verdict.WORKS, Verdict.SLOW, Verdict.OPEN)


def result_of(system: str, asked: str, answer: ProbeResult, seconds: float) -> Result:
    """The verdict for an outcome."""
    verdict, seconds = _VERDICTS.get(answer.outcome, Verdict.WRONG), answer.seconds or seconds
    if verdict is Verdict.WORKS and answer.is_open:
        verdict = Verdict.OPEN
    elif verdict is Verdict.WORKS and seconds > SLOW_SECONDS:
        verdict = Verdict.SLOW
    return Result(system, asked, verdict, round(seconds * 1000), answer.detail, answer.remedies)


def ask_all(probes: Sequence[Probe], limit_seconds: float = LIMIT_SECONDS) -> list[Result]:
    """Run all checks at the same time, within the limit; return the results in the order of the checks."""
    answers: SimpleQueue[tuple[int, Result]] = SimpleQueue()
    started = time.monotonic()
    for number, probe in enumerate(probes):
        threading.Thread(target=_ask, args=(number, probe, answers), name=probe.system, daemon=True).start()
    found: dict[int, Result] = {}
    while len(found) < len(probes):
        try:
            number, result = answers.get(timeout=max(0.0, started + limit_seconds - time.monotonic()))
        except Empty:
            break
        found[number] = result
    late = ProbeResult(Outcome.TIMEOUT, f"no answer within {limit_seconds:g} s")
    return [found.get(n) or result_of(each.system, each.asks, late, limit_seconds) for n, each in enumerate(probes)]


def _ask(number: int, probe: Probe, answers: "SimpleQueue[tuple[int, Result]]") -> None:
    started = time.monotonic()
    try:
        answer = probe.ask()
    except Exception as error:  # any exception is the result of the check
        answer = ProbeResult(Outcome.ERROR, whole_line(str(error) or type(error).__name__))
    answers.put((number, result_of(probe.system, probe.asks, answer, time.monotonic() - started)))


# Checks of this machine: folders, Java, jars, a free port.

MACHINE = "this machine"
_LITTLE_BYTES = 1_000_000_000


def machine_probes(settings: Settings) -> Iterator[Probe]:
    """Yield the checks of this machine."""
    yield Probe(MACHINE, "data folder", lambda: _check_data_dir(settings))
    yield Probe(MACHINE, "checkpoint", lambda: _check_checkpoint(settings))
    yield Probe(MACHINE, "Java", lambda: ProbeResult(Outcome.OK, str(find_java())))
    for group in _jar_groups(settings):
        yield Probe(MACHINE, f"jars: {group}", partial(_check_jars, group, settings.jars_dir))
    yield Probe(MACHINE, f"port {settings.http.port}", lambda: _check_port(settings))


def _check_data_dir(settings: Settings) -> ProbeResult:
    wanted = settings.data_dir.absolute()
    folder = next(each for each in (wanted, *wanted.parents) if each.exists())
    if not os.access(folder, os.W_OK | os.X_OK) or not folder.is_dir():
        remedy = "set data_dir to another folder, or change this one's owner"
        return ProbeResult(Outcome.UNAUTHORIZED, f"{folder} cannot be written to", (remedy,))
    free = shutil.disk_usage(folder).free
    there = "" if folder == settings.data_dir else ", the start creates it"
    if free < _LITTLE_BYTES:
        return ProbeResult(Outcome.ERROR, f"{human_bytes(free)} free{there}", ("make room, or set data_dir elsewhere",))
    return ProbeResult(Outcome.OK, f"{settings.data_dir}: {human_bytes(free)} free{there}")


def _check_checkpoint(settings: Settings) -> ProbeResult:
    place = settings.checkpoint()
    if place.folder is None:
        return ProbeResult(Outcome.OK, f"{place.uri}: only Spark reads it")
    found = Checkpoint(place)
    if not found.exists:
        return ProbeResult(Outcome.OK, "none yet: the query starts with the oldest records")
    if found.damage is not None:
        return ProbeResult(Outcome.ERROR, found.damage, ("headgate checkpoint reset",))
    require_fitting(found, settings)
    return ProbeResult(Outcome.OK, str(found))


def _check_jars(group: str, folder: Path) -> ProbeResult:
    missing = missing_jars(group, folder)
    if missing:
        fetch = f"{shlex.quote(sys.executable)} -m deploy.java.jars {group}"
        detail = f"{counted(len(missing), 'jar')} not fetched yet; the first start also fetches them"
        return ProbeResult(Outcome.ERROR, detail, (fetch,))
    return ProbeResult(Outcome.OK, f"in {folder}")


def _jar_groups(settings: Settings) -> Iterator[str]:
    yield spark_group()
    if settings.kafka is None:
        yield "kafka"
    blocks = settings.policy_settings()
    for kind in POLICIES.values():
        connectors = connectors_of(kind)
        if any(acts_on(connectors, blocks[kind.name], name, each) for name, each in settings.clusters.items()):
            yield from connectors.jars


def _check_port(settings: Settings) -> ProbeResult:
    """Check that the port is free, or in use by a Headgate, which is no problem; its server name needs no token."""
    http = settings.http
    try:
        require_free_port(http.host, http.port, "http.port")
    except UserError as error:
        local = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(http.host, http.host)  # noqa: S104 - compared
        url = f"{http.model_copy(update={'host': local}).url(http.port)}/-/healthy"
        server = ""
        with suppress(httpx.HTTPError):
            # Only the server's name is read, and nothing secret is sent, so its certificate does not matter.
            server = httpx.get(url, timeout=3, trust_env=False, verify=False).headers.get("server", "")  # noqa: S501
        if server.startswith("headgate"):
            return ProbeResult(Outcome.OK, "a Headgate is serving there")
        return ProbeResult(Outcome.ERROR, str(error), ("set http.port (0 takes a free one), or http.host",))
    return ProbeResult(Outcome.OK, f"{http.host} is free for /metrics")


# Runs each collector once, without publishing, and reports whether it could read.

_QUIET_SECONDS = 0.3
"""A round has ended if no poll starts for this time after the last one; a collector's threads start theirs sooner."""
_END_SECONDS = 2.0


class _Polls(PollMetrics):
    """The metrics of one collector, which also detect the end of its first round of polls."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self._changed = threading.Condition()
        self._under_way, self._first_ended_at, self._ended_at = 0, 0.0, 0.0

    def run_poll(self, cluster: str, poll: Callable[[], None]) -> bool:
        """Run a poll as in the loop, and record when it ends."""
        with self._changed:
            self._under_way += 1
        try:
            return super().run_poll(cluster, poll)
        finally:
            with self._changed:
                self._under_way -= 1
                self._ended_at = time.monotonic()
                self._first_ended_at = self._first_ended_at or self._ended_at
                self._changed.notify_all()

    def await_round(self, until: float) -> float | None:
        """Return when the last poll of the first round ended; None if it has not ended by then."""
        with self._changed:
            while (now := time.monotonic()) < until:
                quiet = now - self._ended_at >= _QUIET_SECONDS or now - self._first_ended_at >= _END_SECONDS
                if self._ended_at and not self._under_way and quiet:
                    return self._ended_at
                self._changed.wait(_QUIET_SECONDS if self._ended_at else until - now)
        return None


def cluster_probes(settings: Settings, connections: Connections) -> Iterator[Probe]:
    """Yield the checks of every watched cluster and policy: each collector once, and the needs of the actuators."""
    blocks = settings.policy_settings()
    for name, cluster in settings.clusters.items():
        for kind in POLICIES.values():
            context = ProbeContext(name, cluster, blocks[kind.name].for_cluster(name), connections, settings.kafka)
            registered = connectors_of(kind)
            yield from _collector_probes(kind.name, registered, context)
            yield from load_hook(registered.probes)(context)


def _collector_probes(policy: str, registered: PolicyConnectors, of: ProbeContext) -> Iterator[Probe]:
    for number in count():
        # Readings are attributed to a collector by their sink. So make all collectors again for each check, and run
        # only one.
        readings, polls = list[Reading](), _Polls()
        publish = readings.append
        context = CollectorContext(
            of.name, of.cluster, lambda *_, publish=publish: publish, polls, of.clients, settings=of.settings
        )
        parts = list(load_hook(registered.collectors)(context))
        if number >= len(parts):
            return
        name = parts[number].name.removesuffix(f" of {of.name}")
        ask = partial(_run_once, parts[number], readings, polls, partial(_remedies, registered, of))
        yield Probe(of.name, f"{policy} collector" if name == "collector" else name, ask)


def _remedies(registered: PolicyConnectors, of: ProbeContext, reading: Reading) -> Iterator[str]:
    yield from load_hook(registered.remedies)(of.cluster, reading)
    if reading.outcome in (Outcome.UNREACHABLE, Outcome.TIMEOUT):
        yield f"clusters.{of.name}: check its addresses, that the servers run, and that this machine can reach them"


def _run_once(
    part: Component, readings: list[Reading], polls: _Polls, remedies: Callable[[Reading], Iterator[str]]
) -> ProbeResult:
    began_at = time.monotonic()
    running = threading.Thread(target=part.run, args=(part.stop,), name=part.name, daemon=True)
    running.start()
    ended_at = polls.await_round(began_at + LIMIT_SECONDS - 2 * _END_SECONDS)
    part.stop.set()
    found = list(readings)
    running.join(_END_SECONDS)
    if not found:
        return ProbeResult(Outcome.TIMEOUT, "it has published no reading in time")
    return replace(_summarize_readings(found, remedies), seconds=None if ended_at is None else ended_at - began_at)


def _summarize_readings(readings: list[Reading], remedies: Callable[[Reading], Iterator[str]]) -> ProbeResult:
    """Return the worst reading with its remedies; if all are good, the number of readings of each kind."""
    last = {(type(each), each.subject()): each for each in readings}
    unread = (each for each in last.values() if each.outcome not in (Outcome.OK, Outcome.ABSENT))
    bad = sorted(unread, key=lambda each: rank(each.outcome))
    if bad:
        worst = bad[0]
        subject = "" if worst.subject() == worst.cluster else f"{worst.subject()}: "
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        told = tuple(dict.fromkeys(line for each in bad for line in remedies(each)))
        return ProbeResult(worst.outcome, f"{subject}{worst.detail or worst.outcome.value}{more}", told)
    kinds = ((each.event_type.removeprefix("headgate.").rpartition(".v")[0], each) for each in last.values())
    counts = Counter(f"no {k} ({each.detail})" if each.outcome is Outcome.ABSENT else k for k, each in kinds)
    found = ", ".join(f"{name} {count}" if count > 1 else name for name, count in counts.items())
    return ProbeResult(Outcome.OK, found)


# Shows the doctor's results on a terminal of 80 columns.

_STYLES = {Verdict.WORKS: "green", **dict.fromkeys((Verdict.SLOW, Verdict.OPEN, Verdict.TOO_OLD), "yellow")}


def doctor_view(results: Sequence[Result]) -> RenderableType:
    """Return one line for each result, by system, and the number of results with something to fix."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("checked", ratio=None, overflow="fold", max_width=24)
    table.add_column("", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("detail", overflow="fold")
    for system, answers in groupby(results, key=lambda each: each.system):
        table.add_row(Text(system, style="bold"))
        for each in answers:
            verdict = Text(each.verdict.value, style=_STYLES.get(each.verdict, "bold red"))
            table.add_row(
                Padding(escape(each.asked), (0, 0, 0, 2)), verdict, str(each.milliseconds), escape(each.detail)
            )
    bad, checks = sum(not each.is_good for each in results), counted(len(results), "check")
    slow = sum(each.verdict is Verdict.SLOW for each in results)
    good = f"{bad} of {checks} not good" if bad else f"all of {checks} good"
    return Group(table, "", Text(f"{good}{f', {slow} slow' if slow else ''}", "bold red" if bad else "green"))


def remedies(results: Sequence[Result]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the remedies by system, as lines to copy, which must not be wrapped to a terminal's width."""
    for each in results:
        if each.remedies and not each.is_good:
            yield f"{each.system}, {each.asked}", tuple(map(complete_commands, each.remedies))


# The command `headgate doctor`: runs all checks in parallel and shows the results.


def examine(settings: Settings, parts: tuple[str, ...], *, as_json: bool) -> bool:
    """Run all checks and print their results; return whether all are good.

    `parts` are those, as in `headgate topics acls`, whose rights are checked; empty for all parts of `headgate run`.
    """
    for part in parts:
        rights_of(part)
    if settings.kafka is None and not settings.clusters:
        raise UserError(
            "the settings name no Kafka and no cluster, so there is nothing to examine: pass the settings file (-s "
            "FILE, or HEADGATE_SETTINGS)"
        )
    console = SafeConsole(highlight=False)
    with Connections(settings) as connections:
        probes = list(all_probes(settings, parts, connections))
        with Status(f"running {counted(len(probes), 'check')}", console=SafeConsole(stderr=True)):
            results = ask_all(probes)
    if as_json:
        shown = [{**asdict(each), "verdict": each.verdict.value, "good": each.is_good} for each in results]
        typer.echo(json.dumps(shown, ensure_ascii=False))
    else:
        console.print(doctor_view(results))
        for place, lines in remedies(results):
            console.print(f"\n{place}:", style="bold", markup=False)
            for line in lines:
                console.print(line, markup=False, soft_wrap=True)
    return all(each.is_good for each in results)


def all_probes(settings: Settings, parts: tuple[str, ...], connections: Connections) -> Iterator[Probe]:
    """Yield all checks; `connections` must stay open until they have run."""
    yield from machine_probes(settings)
    if settings.kafka is not None:
        asked = parts or RUN_PARTS
        yield from loop_probes(settings.kafka, settings.topics, asked)
        if "decide" in asked:  # others lack the right to look at this group
            yield Probe(LOOP_KAFKA, "deciding", partial(_check_deciders, settings.kafka, settings.topics))
    if settings.alertmanager is not None:
        for url in settings.alertmanager.urls:
            yield Probe("Alertmanager", url, partial(_check_alertmanager, settings.alertmanager, url))
    yield from cluster_probes(settings, connections)


def _check_deciders(connection: KafkaConnection, topics: TopicSettings) -> ProbeResult:
    try:
        found = find_deciders(connection, topics)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return ProbeResult(Outcome.UNAUTHORIZED, f"the group of {topics.topic('decide')}: see rights")
        cause = error.args[0].str() if isinstance(error, KafkaException) else error
        return ProbeResult(Outcome.UNREACHABLE, whole_line(f"the group of {topics.topic('decide')}: {cause}"))
    if (loops := describe_loops(found, topics.prefix)) is not None:
        remedy = (
            "stop the process that does not belong there, give it another topics.prefix, or, for a stand-by, the same "
            "stream.checkpoint_dir"
        )
        return ProbeResult(Outcome.ERROR, loops, (remedy,))
    hosts = name_some(sorted({each.host for each in found}))
    return ProbeResult(Outcome.OK, f"{counted(len(found), 'member')} on {hosts}" if found else "no process decides now")


def _check_alertmanager(settings: AlertmanagerSettings, url: str) -> ProbeResult:
    try:
        with settings.http_client() as client:
            said = client.get(f"{url.rstrip('/')}/api/v2/status")
    except (httpx.HTTPError, UserError) as error:
        return ProbeResult(Outcome.UNREACHABLE, whole_line(str(error) or type(error).__name__))
    if said.status_code in (401, 403):
        remedy = "alertmanager.token_file: a token that its proxy accepts"
        return ProbeResult(Outcome.UNAUTHORIZED, f"status {said.status_code}", (remedy,))
    if not said.is_success or '"versionInfo"' not in said.text:
        remedy = "alertmanager.urls: the base of an Alertmanager 0.16 or newer, without /api/v2"
        return ProbeResult(Outcome.ERROR, f"status {said.status_code}, and no API v2", (remedy,))
    version = said.json().get("versionInfo", {}).get("version", "?")
    return ProbeResult(Outcome.OK, whole_line(f"version {version}"))
