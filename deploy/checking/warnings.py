"""Warnings of `headgate check`: settings that are valid but probably unintended."""

import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from connectors.kafka.connection import KafkaConnection, SaslMechanism
from connectors.registration import SettingsWarning, connectors_of
from deploy.checking.environment import unknown_variables, variable_for
from deploy.checking.schema import model_at, names_at, places
from deploy.checking.suggestions import suggest
from deploy.checking.yaml_text import mappings, odd_numbers
from deploy.settings.application import Settings
from policies.registry import POLICIES
from policies.throttle.quota_coverage import CATCH_ALL
from policies.throttle.quota_settings import QuotaSettings
from policies.units import human_bytes
from streaming.settings import is_loopback

_VARIABLE = re.compile(r"\$\{[^{}\n]*\}|\$\([^()\n]*\)|\$[A-Z_][A-Z0-9_]{2,}\b|\{\{[^{}\n]*\}\}")
_GLOB = re.compile(r"[*?]|\[.+\]")
_SECRETS = frozenset({"password", "token", "client_secret"})
_CURLY_QUOTES = "\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb"
_LEAST_LIMIT_BYTES = 1_000_000
_NULL = "tag:yaml.org,2002:null"


def text_warnings(tree: yaml.Node | None) -> Iterator[SettingsWarning]:
    """Yield warnings about the text of the file, whether its settings are valid or not."""
    for place, block in mappings(tree):
        for key, value in block.value:
            if not isinstance(value, yaml.ScalarNode) or not isinstance(key, yaml.ScalarNode):
                continue
            here = (*map(str, place), key.value)
            if _VARIABLE.search(value.value):
                yield SettingsWarning(
                    here, f"contains a variable, which is not expanded here: set {_variable_hint(here)} instead"
                )
            elif key.value in _SECRETS and value.value and model_at(Settings, here[:-1]) is not None:
                yield SettingsWarning(
                    here,
                    f"is a secret in this file: put it into a file of its own ({key.value}_file), or set "
                    f"{_variable_hint(here)}",
                )
            elif value.value[:1] and value.value[0] in _CURLY_QUOTES:
                yield SettingsWarning(here, "begins with a curly quote, which YAML treats as text: use ' or \"")
            elif value.tag == _NULL and not value.value and model_at(Settings, here) is not None:
                yield SettingsWarning(here, f"is empty and therefore off{_empty_block_hint(here)}")
    for place, number in odd_numbers(tree):
        yield SettingsWarning(
            tuple(map(str, place)),
            f"is {number} in YAML because of its leading 0 or its colon: write that number, or put the value in quotes",
        )


def environment_warnings(settings: Settings | None) -> Iterator[tuple[str, str]]:
    """Yield variables without effect: the name, and a sentence."""
    clusters = [] if settings is None else list(settings.clusters)
    yield from unknown_variables(os.environ, Settings.model_fields, places(Settings, clusters))


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
        yield from _tiny_limit_warnings(name, blocks[name])
    host = f"[{settings.http.host}]" if ":" in settings.http.host else settings.http.host
    if settings.http.access is None and not is_loopback(f"{host}:1"):
        yield SettingsWarning(
            ("http", "host"), "serves status page, API and metrics to everybody who reaches it: set http.access"
        )
    yield from _duplicate_cluster_warnings(settings)
    yield from _own_client_warnings(settings)
    yield from _clear_password_warnings(settings)


def _tiny_limit_warnings(policy: str, block: Any) -> Iterator[SettingsWarning]:
    """Yield warnings about limits in bytes that no disk notices: somebody meant GB."""
    for name in ("hard", "soft"):
        overrides = ((("clusters", pattern), each) for pattern, each in block.overrides().items())
        for place, each in (((), block), *overrides):
            limit = getattr(each, name, None)
            size = None if limit is None else limit.available_bytes_below
            is_inherited = bool(place) and limit == getattr(block, name, None)
            if size is not None and size < _LEAST_LIMIT_BYTES and not is_inherited:
                yield SettingsWarning(
                    ("policies", policy, *place, name, "available_bytes_below"),
                    f"is {human_bytes(size)}, which a disk passes in a moment: write a unit, such as {size or 5:g}GB",
                )


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
    """Yield warnings about quotas that slow Headgate's own clients down: a stop could delay its own end."""
    own = settings.kafka
    for name, cluster in settings.clusters.items():
        quotas = cluster.setting(QuotaSettings)
        if own is None or cluster.kafka is None or quotas is None or own.bootstrap_servers is None:
            continue
        user = None if own.sasl is None else own.sasl.username
        is_shared = not set(own.servers()).isdisjoint(cluster.kafka.servers())
        if is_shared and user not in quotas.exclude and any(spec.entity in CATCH_ALL for spec in quotas.entities):
            line = f"exclude: [{user}]" if user else "a user of its own (kafka.sasl), and exclude: [that user]"
            what = "slows Headgate down, too, whose topics are on the same Kafka: use another one, or set"
            yield SettingsWarning(("clusters", name, "quotas"), f"{what} {line}")


def _clear_password_warnings(settings: Settings) -> Iterator[SettingsWarning]:
    named: dict[tuple[str, ...], KafkaConnection | None] = {("kafka",): settings.kafka}
    named |= {("clusters", name, "kafka"): each.kafka for name, each in settings.clusters.items()}
    for place, kafka in named.items():
        sasl = None if kafka is None or kafka.tls is not None else kafka.sasl
        if sasl is not None and sasl.mechanism is SaslMechanism.PLAIN:
            yield SettingsWarning((*place, "sasl"), "sends the password unencrypted: set tls: {}, or use SCRAM-SHA-512")


def _variable_hint(here: tuple[str, ...]) -> str:
    name = variable_for(here)
    return name if re.fullmatch(r"[A-Z0-9_]+", name) else "the value itself, or a …_file"


def _empty_block_hint(here: tuple[str, ...]) -> str:
    model: Any = model_at(Settings, here)
    fields = getattr(model, "model_fields", {})
    needed = [name for name in names_at(Settings, here) if name in fields and fields[name].is_required()]
    if not needed:
        try:
            TypeAdapter(model).validate_python({})
        except ValidationError:
            return ""
    which = f", with {', '.join(needed)}" if needed else ""
    return f": write {{}} to turn it on{which}"
