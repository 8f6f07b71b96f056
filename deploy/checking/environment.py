"""Checks environment variables that begin with HEADGATE_: which one caused a mistake, and which one has no effect."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from deploy.checking.schema import Place
from deploy.checking.suggestions import suggest

PREFIX, DELIMITER = "HEADGATE_", "__"

_OF_OTHERS = frozenset({"HEADGATE_IVY_SETTINGS", "HEADGATE_SETTINGS"})
"""Variables that are no settings, but have an effect."""

_KUBERNETES = re.compile(
    r"HEADGATE(?:_[A-Z0-9]+)*_(?:SERVICE_(?:HOST|PORT(?:_\w+)?)|PORT(?:_\d+_(?:TCP|UDP)(?:_\w+)?)?)"
)
"""The variables that Kubernetes sets in a pod for services named headgate-…."""
_PORT = re.compile(r"(?<!_SERVICE)_PORT$")
"""Of these, the variables that are addresses."""


def variable_of(place: Place, environment: Mapping[str, str]) -> str | None:
    """Return the variable that sets a setting; None if no variable does.

    It is the setting's own variable, or that of a block around it whose JSON contains the setting.
    """
    given = {name.upper(): name for name in environment}
    parts = [str(part) for part in place]
    for length in range(len(parts), 0, -1):
        name = given.get(variable_for(parts[:length]))
        if name is not None and (length == len(parts) or _contains(environment[name], parts[length:])):
            return name
    return None


def variable_below(place: Place, environment: Mapping[str, str]) -> str | None:
    """Return a variable that sets something below a setting; None if there is none."""
    above = f"{variable_for(place)}{DELIMITER}"
    return next((name for name in sorted(environment) if place and name.upper().startswith(above)), None)


def switches_of(environment: Mapping[str, str]) -> Iterator[tuple[Place, str]]:
    """Yield every true or false in the blocks that variables contain as JSON: its path, and its text."""
    for name, text in sorted(environment.items()):
        if name.upper().startswith(PREFIX) and text.lstrip()[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                yield from _switches_in(json.loads(text), tuple(name[len(PREFIX) :].lower().split(DELIMITER)))


def _switches_in(value: object, place: Place) -> Iterator[tuple[Place, str]]:
    match value:
        case bool():
            yield place, str(value).lower()
        case dict() | list():
            for part, below in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _switches_in(below, (*place, part))


def with_names_of_clusters(given: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables' settings with the clusters' names as the file writes them, because variables ignore case.

    Args:
        given: the variables' settings, as nested blocks.
        file: the file's content, valid or not.
    """
    names, policies = _block(file, "clusters"), _block(given, "policies")
    named = {**given, **_rename_clusters(given, names)}
    if policies:
        of_file = _block(file, "policies")
        blocks = {
            name: {**block, **_rename_clusters(block, {**names, **_block(_block(of_file, name), "clusters")})}
            if isinstance(block, Mapping)
            else block
            for name, block in policies.items()
        }
        named["policies"] = blocks
    return named


def _rename_clusters(block: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Rename each cluster of a block to the one name of the file that differs only in case."""
    clusters = _block(block, "clusters")
    alike = Counter(name.lower() for name in names)
    known = {name.lower(): name for name in names if alike[name.lower()] == 1}
    taken = {name: name if known.get(name, name) in clusters else known[name] for name in clusters}
    return {"clusters": {taken[name]: value for name, value in clusters.items()}} if clusters else {}


def _block(around: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = around.get(name)
    return value if isinstance(value, Mapping) else {}


def variable_for(parts: Sequence[int | str]) -> str:
    """Return the name of a setting's variable: ``HEADGATE_KAFKA__SASL__PASSWORD``."""
    return PREFIX + DELIMITER.join(str(part) for part in parts).upper()


def unknown_variables(
    environment: Mapping[str, str], names: Iterable[str], settings: Iterable[Place]
) -> Iterator[tuple[str, str]]:
    """Yield variables that look like settings and have no effect: the name, and a sentence.

    Args:
        names: the top-level settings.
    """
    top = {name.upper() for name in names}
    unknown = [
        name
        for name, value in environment.items()
        if name.upper().startswith(PREFIX)
        and name.upper().removeprefix(PREFIX).partition(DELIMITER)[0] not in top
        and name.upper() not in _OF_OTHERS
        and not (_KUBERNETES.fullmatch(name) and (value.startswith(("tcp://", "udp://")) or not _PORT.search(name)))
    ]
    known = [variable_for(place) for place in settings] if unknown else []
    for name in sorted(unknown):
        yield name, f"is no setting and has no effect{suggest(name, [*known, *_OF_OTHERS])}"


def _contains(text: str, parts: Sequence[str]) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    for part in parts:
        below = dict(zip(map(str, range(len(value))), value, strict=True)) if isinstance(value, list) else value
        if not isinstance(below, dict) or part not in below:
            return False
        value = below[part]
    return True
