"""The command `headgate check`: prints every error at once, then warnings."""

import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import Node, ScalarNode

from connectors.kafka.connection import KafkaConnection, SaslMechanism
from connectors.kafka.properties import SECRET_NAME
from connectors.registration import SettingsWarning, connectors_of
from deploy.console.terminal import SafeConsole
from deploy.settings.application import Settings
from deploy.settings.file import mappings, read_file, settings_of, unusable_files
from deploy.settings.schema import model_at, places, suggest, unknown_variables, variable_for
from policies.registry import POLICIES
from policies.throttle.quotas import exclude_own
from policies.throttle.settings import QuotaSettings
from policies.units import UserError, counted, human_bytes
from streaming.settings import is_loopback

# Prints the settings in force as an equivalent settings file: each cluster with its overrides merged.


def effective_settings(settings: Settings) -> str:
    """Return all settings as YAML: with defaults, with null for a setting that is off, and with secrets masked.

    Below each policy's `clusters`, every watched cluster has its whole block. If the settings name no cluster, each
    override has its whole block instead.
    """
    written = settings.model_dump(mode="json")
    for name, block in settings.policy_settings().items():
        whole = {cluster: block.for_cluster(cluster) for cluster in settings.clusters} or block.overrides()
        clusters = {cluster: each.model_dump(mode="json", exclude={"clusters"}) for cluster, each in whole.items()}
        written["policies"][name] = {**block.model_dump(mode="json"), "clusters": clusters}
    text = StringIO()
    yaml = YAML()
    yaml.width = 120
    # Of an empty value, `check` warns that it may be forgotten.
    yaml.representer.add_representer(type(None), lambda dumper, _: dumper.represent_scalar(_NULL, "null"))
    yaml.dump(written, text)
    return text.getvalue()


# Warnings of `headgate check`: settings that are valid but probably unintended.

_VARIABLE = re.compile(r"\$\{[^{}\n]*\}|\$\([^()\n]*\)|\$[A-Z_][A-Z0-9_]{2,}\b|\{\{[^{}\n]*\}\}")
_GLOB = re.compile(r"[*?]|\[.+\]")
_SECRETS = frozenset({"password", "token", "client_secret"})
_LEAST_LIMIT_BYTES = 1_000_000
_NULL = "tag:yaml.org,2002:null"


def text_warnings(tree: Node | None) -> Iterator[SettingsWarning]:
    """Yield warnings about the text of the file, whether its settings are valid or not."""
    for place, block in mappings(tree):
        for key, value in block.value:
            if not isinstance(value, ScalarNode) or not isinstance(key, ScalarNode):
                continue
            here = (*map(str, place), key.value)
            # A client's property has its name as it is.
            is_property = len(here) > 1 and (here[-2] == "properties" or here[-3:-1] == ("stream", "kafka"))
            if _VARIABLE.search(value.value):
                yield SettingsWarning(
                    here, f"contains a variable, which is not expanded here: set {_variable_hint(here)} instead"
                )
            elif is_property and SECRET_NAME.search(key.value):
                variable = variable_for(here[:-1])
                yield SettingsWarning(
                    here, f'is a secret in this file: set {variable} to JSON such as {{"{key.value}": …}} instead'
                )
            elif key.value in _SECRETS and value.value and model_at(Settings, here[:-1]) is not None:
                yield SettingsWarning(
                    here,
                    f"is a secret in this file: put it into a file of its own ({key.value}_file), or set "
                    f"{_variable_hint(here)}",
                )
            elif value.tag == _NULL and not value.value and model_at(Settings, here) is not None:
                yield SettingsWarning(here, "is empty and therefore off: write {} to turn it on")


def settings_warnings(settings: Settings, *, is_empty: bool) -> Iterator[SettingsWarning]:
    """Yield warnings about valid settings whose effect is hardly intended."""
    if is_empty:
        yield SettingsWarning((), "nothing is set: `headgate docs settings` lists all settings")
    elif not settings.clusters:
        yield SettingsWarning((), "names no cluster, so nothing is watched; only `headgate replay` works without one")
    for name in settings.clusters:
        if re.search(r"[\s/]", name):
            yield SettingsWarning(
                ("clusters", name),
                f"the name '{name}' has a blank or `/`, which commands, subjects and links must quote: rename it",
            )
        if _GLOB.search(name):
            yield SettingsWarning(
                ("clusters", name), "is the name of one cluster: globs work only in policies.….clusters"
            )
    blocks: Mapping[str, Any] = settings.policy_settings()
    for name, kind in POLICIES.items():
        if settings.clusters:
            yield from _override_warnings(
                name, list(getattr(settings.policies, name).clusters), list(settings.clusters)
            )
        yield from connectors_of(kind).warnings(blocks[name], settings.clusters)
        yield from _limit_warnings(name, blocks[name])
    host = f"[{settings.http.host}]" if ":" in settings.http.host else settings.http.host
    if settings.http.access is None and not is_loopback(f"{host}:1"):
        yield SettingsWarning(
            ("http", "host"), "serves status page, API and metrics to everybody who reaches it: set http.access"
        )
    yield from _duplicate_cluster_warnings(settings)
    yield from _own_client_warnings(settings)
    yield from _clear_password_warnings(settings)


def _limit_warnings(policy: str, block: Any) -> Iterator[SettingsWarning]:
    """Yield warnings about limits in bytes that no disk notices (somebody meant GB), and margins that none clears."""
    for name, state in (("hard", "a stop"), ("soft", "its alert")):
        overrides = ((("clusters", pattern), each) for pattern, each in block.overrides().items())
        for place, each in (((), block), *overrides):
            limit, where = getattr(each, name, None), ("policies", policy, *place)
            if limit is None:
                continue
            size, is_inherited = limit.available_bytes_below, bool(place) and limit == getattr(block, name, None)
            if size is not None and size < _LEAST_LIMIT_BYTES and not is_inherited:
                yield SettingsWarning(
                    (*where, name, "available_bytes_below"),
                    f"is {human_bytes(size)}, which a disk passes in a moment: write a unit, such as {size or 5:g}GB",
                )
            is_inherited = is_inherited and each.recovery_margin == block.recovery_margin
            if (limit.available_ratio_below or 0.0) * (1 + each.recovery_margin) >= 1.0 and not is_inherited:
                sentence = f"{state} never ends, as no volume has more free than the {name} limit and this share of it"
                place = (*where, "recovery_margin")
                yield SettingsWarning(place, f"{sentence}; lower the limit or the margin", is_mistake=True)


def _override_warnings(policy: str, patterns: list[str], clusters: list[str]) -> Iterator[SettingsWarning]:
    """Yield warnings about overrides that are never in force: no cluster matches, or earlier ones match all of them."""
    taken: dict[str, str] = {}
    for pattern in patterns:
        matched = [each for each in clusters if fnmatchcase(each, pattern)]
        place = ("policies", policy, "clusters", pattern)
        if not matched:
            yield SettingsWarning(place, f"matches no cluster and has no effect{suggest(pattern, clusters)}")
        elif all(each in taken for each in matched):
            yield SettingsWarning(
                place, f"is never in force: {taken[matched[0]]} is before it, and the first match wins"
            )
        taken = {**dict.fromkeys(matched, pattern), **taken}


def _duplicate_cluster_warnings(settings: Settings) -> Iterator[SettingsWarning]:
    seen: dict[frozenset[str], str] = {}
    for name, cluster in settings.clusters.items():
        if cluster.kafka is not None:
            first = seen.setdefault(frozenset(cluster.kafka.servers()), name)
            if first != name:
                place = ("clusters", name, "kafka", "bootstrap_servers")
                yield SettingsWarning(place, f"names the brokers of {first}: both would decide on the same disks")


def _own_client_warnings(settings: Settings) -> Iterator[SettingsWarning]:
    """Yield warnings about a loop on a Kafka that it guards: its topics fill the disks, and a stop may slow it down."""
    own = settings.kafka
    for name, cluster in settings.clusters.items():
        if own is None or cluster.kafka is None or set(own.servers()).isdisjoint(cluster.kafka.servers()):
            continue
        copies = (
            "" if settings.topics.replication_factor else ", with topics.replication_factor: 3 if it has the brokers"
        )
        yield SettingsWarning(
            ("kafka", "bootstrap_servers"),
            f"is the watched {name}: Headgate's topics stand on the disks that it guards, and a full one stops it; to "
            f"try it that will do{copies}",
        )
        quotas = cluster.setting(QuotaSettings)
        line = None if quotas is None else exclude_own(quotas, own.username)
        if line is not None:
            what = "slows Headgate down, too, whose topics are on the same Kafka: use another one, or set"
            yield SettingsWarning(("clusters", name, "quotas"), f"{what} {line}")


def _clear_password_warnings(settings: Settings) -> Iterator[SettingsWarning]:
    named: dict[tuple[str, ...], KafkaConnection | None] = {("kafka",): settings.kafka}
    named |= {("clusters", name, "kafka"): each.kafka for name, each in settings.clusters.items()}
    for place, kafka in named.items():
        if kafka is None or kafka.sasl is None or kafka.encryption is not None:
            continue
        if kafka.sasl.mechanism is SaslMechanism.PLAIN:
            yield SettingsWarning((*place, "sasl"), "sends the password unencrypted: set tls: {}, or use SCRAM-SHA-512")


def _variable_hint(here: tuple[str, ...]) -> str:
    name = variable_for(here)
    return name if re.fullmatch(r"[A-Z0-9_]+", name) else "the value itself, or a …_file"


def check(file: Path | None, *, effective: bool) -> None:
    """Check a file and print the result; with `effective`, print the settings in force, and warnings on standard error.

    Raises UserError if the file has mistakes; the message lists all of them, one a line.
    """
    read = read_file(file)
    locate = read.locate
    found, clusters = list(text_warnings(read.tree)), list[str]()
    console = SafeConsole(stderr=effective, highlight=False, soft_wrap=True)
    try:
        settings = settings_of(read)
        if unusable := [f"{locate(place)}: {what}" for place, what in unusable_files(settings)]:
            raise UserError("\n".join(unusable))
        clusters = list(settings.clusters)
        found += settings_warnings(settings, is_empty=not read.content and file is not None)
    finally:
        unknown = unknown_variables(os.environ, Settings.model_fields, places(Settings, clusters))
        warnings = [f"{locate(each.place)}: {each.sentence}" for each in found if not each.is_mistake]
        warnings += [f"environment: {name}: {sentence}" for name, sentence in unknown]
        for each in warnings:
            console.print(f"warning: {each}", style="yellow", markup=False)
    if mistakes := [f"{locate(each.place)}: {each.sentence}" for each in found if each.is_mistake]:
        raise UserError("\n".join(mistakes))
    if effective:
        SafeConsole(highlight=False, soft_wrap=True).print(effective_settings(settings), end="", markup=False)
    else:
        watched = ", ".join(settings.clusters) or "no cluster"
        but = f", with {counted(len(warnings), 'warning')}" if warnings else ""
        console.print(f"{file or 'the environment'} is good{but}: {watched} watched.", markup=False)
