"""Checks of this machine: folders, Java, jars, a free port."""

import os
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx

from connectors.collection.probe import Probe, ProbeResult
from connectors.collection.read_errors import whole_line
from connectors.registration import acts_on, connectors_of
from deploy.java.jars import missing_jars, spark_group
from deploy.java.jvm import find_java
from deploy.query.checkpoint import Checkpoint, require_fitting
from deploy.settings.application import Settings
from deploy.settings.http import HttpSettings
from policies.errors import UserError
from policies.observations import Outcome
from policies.registry import POLICIES
from policies.units import counted, human_bytes

MACHINE = "this machine"
_LITTLE_BYTES = 1_000_000_000


def machine_probes(settings: Settings) -> Iterator[Probe]:
    """Yield the checks of this machine."""
    yield Probe(MACHINE, "data folder", lambda: _check_data_dir(settings))
    yield Probe(MACHINE, "checkpoint", lambda: _check_checkpoint(settings))
    yield Probe(MACHINE, "Java", _check_java)
    for group in _jar_groups(settings):
        yield Probe(MACHINE, f"jars: {group}", partial(_check_jars, group, settings.jars_dir))
    yield Probe(MACHINE, f"port {settings.http.port}", lambda: _check_port(settings))


def _check_data_dir(settings: Settings) -> ProbeResult:
    folder = _existing_folder(settings.data_dir)
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
    found = Checkpoint(place.folder)
    if not found.exists:
        return ProbeResult(Outcome.OK, "none yet: the query starts with the oldest records")
    if damages := found.damages:
        said = f"{damages[0].path.name}: {damages[0].what}"
        return ProbeResult(Outcome.ERROR, said, ("headgate checkpoint reset",))
    try:
        require_fitting(found.plan, settings.stream.shuffle_partitions, settings.topics.prefix)
    except UserError as error:
        return ProbeResult(Outcome.ERROR, whole_line(str(error)))
    return ProbeResult(Outcome.OK, str(found.folder))


def _check_java() -> ProbeResult:
    try:
        return ProbeResult(Outcome.OK, str(find_java()))
    except UserError as error:
        return ProbeResult(Outcome.ERROR, str(error))


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
    host, port = settings.http.host, settings.http.port
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return _explain_taken_port(settings.http, error)
    return ProbeResult(Outcome.OK, f"{host} is free for /metrics")


def _explain_taken_port(http: HttpSettings, error: OSError) -> ProbeResult:
    """Return whether the port is in use by a Headgate, which is no problem; its server name needs no token."""
    local = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(http.host, http.host)  # noqa: S104 - compared
    url = f"{http.model_copy(update={'host': local}).url(http.port)}/-/healthy"
    try:
        # Only the server's name is read, and nothing secret is sent, so its certificate does not matter.
        server = httpx.get(url, timeout=3, trust_env=False, verify=False).headers.get("server", "")  # noqa: S501
    except httpx.HTTPError:
        server = ""
    if server.startswith("headgate"):
        return ProbeResult(Outcome.OK, "a Headgate is serving there")
    return ProbeResult(Outcome.ERROR, f"{error.strerror}", ("set http.port (0 takes a free one), or http.host",))


def _existing_folder(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.exists())
