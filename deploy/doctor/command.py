"""The command `headgate doctor`: runs all checks in parallel and shows the results."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import httpx
import typer
from confluent_kafka import KafkaException
from rich.status import Status

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.collection.probe import Probe, ProbeResult
from connectors.collection.read_errors import whole_line
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.probes import LOOP as LOOP_KAFKA
from connectors.kafka.probes import loop_probes
from connectors.kafka.rights import rights, rights_of
from connectors.kafka.topics import TopicSettings
from connectors.partitions.deciders import describe_loops, find_deciders
from deploy.commands.console import SafeConsole
from deploy.doctor.collectors import cluster_probes
from deploy.doctor.machine import machine_probes
from deploy.doctor.results import ask_all
from deploy.doctor.view import doctor_view, remedies
from deploy.processes.connections import Connections
from deploy.settings.application import Settings
from policies.errors import UserError
from policies.observations import Outcome
from policies.units import counted, name_some


def examine(settings: Settings, parts: tuple[str, ...], *, as_json: bool) -> bool:
    """Run all checks and print their results; return whether all are good.

    Args:
        parts: the parts, as in `headgate topics acls`, whose rights are checked; empty for all parts of `headgate run`.

    Raises:
        UserError: a part does not exist, or the settings name nothing to connect to.
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
        typer.echo(
            json.dumps(
                [{**asdict(each), "verdict": each.verdict.value, "good": each.is_good} for each in results],
                ensure_ascii=False,
            )
        )
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
        yield from loop_probes(
            settings.kafka, settings.topics, parts or tuple(part for part in rights() if part != "command")
        )
        yield Probe(LOOP_KAFKA, "deciding", partial(_check_deciders, settings.kafka, settings.topics))
    if settings.alertmanager is not None:
        for url in settings.alertmanager.urls:
            yield Probe("Alertmanager", url, partial(_check_alertmanager, settings.alertmanager, url))
    yield from cluster_probes(settings, connections)


def _check_deciders(connection: KafkaConnection, topics: TopicSettings) -> ProbeResult:
    try:
        found = find_deciders(connection, topics)
    except (KafkaException, TimeoutError) as error:
        return ProbeResult(Outcome.UNREACHABLE, whole_line(f"the group of {topics.topic('decide')}: {error}"))
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
