"""Turns validation errors into sentences that name the place and the remedy, and never quote the given value."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from deploy.checking.environment import switches_of, variable_below, variable_of
from deploy.checking.schema import Place, field_at, is_number, is_secret, names_at, places
from deploy.checking.suggestions import nearest, suggest
from deploy.checking.yaml_text import MAX_MISTAKES, line_of, node_at, shown_name, switches
from policies.registry import POLICIES

_PERCENT = re.compile(r"(\d{1,3}(?:[.,]\d+)?|[.,]\d+) ?%")
_CHOICE = re.compile(r"'([^']+)'")
_NOT_TEXT = (
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:bool",
    "tag:yaml.org,2002:timestamp",
)
_OF_A_KEY = "[key]"
"""The suffix that pydantic adds to the place of an invalid key."""
_BLOCKS = ("model_type", "dict_type", "model_attributes_type", "dataclass_type")


class Wording:
    """Words the mistakes of one file and of the environment that overrides it.

    Args:
        root: the model of all settings.
        tree: the file's YAML tree; None without a file.
        file: the file's name in messages; None without one.
    """

    def __init__(
        self, root: type[BaseModel], tree: yaml.Node | None, file: str | None, environment: Mapping[str, str]
    ) -> None:
        self._root = root
        self._tree = tree
        self._file = file
        self._environment = environment

    def mistakes(self, error: ValidationError) -> Iterator[str]:
        """Return a line for each of the first hundred mistakes."""
        # Do not show the input, because it may contain a secret.
        found = error.errors(include_url=False, include_input=False, include_context=False)
        found = [each for each in found if not _is_caused_by_others(each, found)]
        found.sort(key=lambda each: line_of(self._tree, each["loc"]) or 0)
        for each in found[:MAX_MISTAKES]:
            yield f"{self.locate(each['loc'])}: {self._message(each)}"
        if (more := len(found) - MAX_MISTAKES) > 0:
            yield f"{self._file or 'environment'}: and {more} more mistakes"

    def switches_for_numbers(self) -> Iterator[str]:
        """Return a line for each true or false where a number belongs; pydantic would accept it as 1 or 0."""
        for place, written in (*switches(self._tree), *switches_of(self._environment)):
            if is_number(self._root, place):
                yield f"{self.locate(place)}: needs a number, but {written} is none"

    def locate(self, place: Place) -> str:
        """Return the place of a setting: ``headgate.yaml:3: http.port``, or ``environment: HEADGATE_HTTP__PORT``."""
        place = tuple(part for part in place if part != _OF_A_KEY)
        variable = variable_of(place, self._environment)
        if variable is None and node_at(self._tree, place) is None:
            variable = variable_below(place, self._environment)
        if variable is not None:
            return f"environment: {variable}"
        around = self._variable_for_missing_block(place)
        return self._in_file(place) if around is None else f"environment: {around}: {'.'.join(map(shown_name, place))}"

    def _variable_for_missing_block(self, place: Place) -> str | None:
        """Return a variable that sets something in the same block of a cluster, if the file has no such block."""
        for length in range(len(place) - 1, 1, -1):
            if node_at(self._tree, place[:length]) is not None:
                return None
            if (variable := variable_below(place[:length], self._environment)) is not None:
                return variable
        return None

    def misspelt(self, names: Iterable[str]) -> Iterator[str]:
        """Return a line for each top-level name that differs from a setting only in case; pydantic would accept it."""
        known = names_at(self._root, ())
        for name in names:
            if name not in known and name.lower() in known:
                yield f"{self._in_file((name,))}: no such setting; did you mean {name.lower()}?"

    def _in_file(self, place: Place) -> str:
        line = line_of(self._tree, place)
        path = "".join(f"{'.' if number else ': '}{shown_name(part)}" for number, part in enumerate(place))
        return f"{self._file or 'environment'}{f':{line}' if line else ''}{path}"

    def _message(self, mistake: ErrorDetails) -> str:
        kind, place = mistake["type"], mistake["loc"]
        match kind:
            case "extra_forbidden" | "unexpected_keyword_argument":
                return self._explain_unknown(place)
            case "missing" | "missing_argument":
                return "is needed"
            case "too_short":
                return "is empty: it needs at least one entry"
            case "path_type":
                return "is no path: write one in quotes"
            case kind if kind in _BLOCKS:
                return self._explain_non_block(place)
        said = mistake["msg"].removeprefix("Value error, ")
        said = said[:1].lower() + said[1:] if said[:2].istitle() else said
        return said + self._remedy(kind, place, said)

    def _explain_unknown(self, place: Place) -> str:
        *around, name = place
        if around == ["policies"]:
            return f"no such policy in this version; there is {', '.join(POLICIES)}"
        if name == "clusters" and "clusters" in around:
            return "no such setting: overrides contain no further overrides"
        if ":" in str(name):
            return "no such setting: is a space missing after the colon?"
        if str(name)[:1].isdigit():
            return "no such setting: is it the part of a number after a comma? Write decimals with a point"
        here = names_at(self._root, tuple(around))
        if (near := nearest(str(name), here)) is not None:
            return f"no such setting; did you mean {near}?"
        elsewhere = self._misplaced_name(tuple(around), str(name))
        return f"no such setting here; there is {elsewhere}" if elsewhere else f"no such setting{suggest('', here)}"

    def _misplaced_name(self, around: Place, name: str) -> str | None:
        """Return the path of the setting with this name that is nearest to the given place."""
        clusters = [str(around[1])] if around[:1] == ("clusters",) and len(around) > 1 else ["NAME"]
        found = [each for each in places(self._root, clusters) if each[-1] == name]
        found.sort(key=lambda each: (-_common_length(each, around), len(each)))
        return ".".join(map(shown_name, found[0])) if found else None

    def _explain_non_block(self, place: Place) -> str:
        names = names_at(self._root, place)
        example = f", such as {shown_name(place[-1])}: {{{names[0]}: …}}" if names and place else ""
        share = self._read_share(place)
        if share and "available_ratio_below" in names:
            return f"must contain settings by name: {share} is written {{available_ratio_below: {share.value}}}"
        return f"must contain settings by name{example}"

    def _remedy(self, kind: str, place: Place, said: str) -> str:
        share = self._read_share(place)
        if share is not None and kind.startswith(("float", "int", "decimal", "less_than", "greater_than")):
            return f"; write {share} as {share.value}"
        if share is not None and str(place[-1]) == "available_bytes_below":
            return f"; for {share} write available_ratio_below: {share.value}"
        node = node_at(self._tree, place)
        match kind:
            case "enum" | "literal_error" if isinstance(node, yaml.ScalarNode):
                choices = _CHOICE.findall(said)
                near = nearest(node.value, choices) or next(filter(node.value.casefold().startswith, choices), None)
                return f"; did you mean {near}?" if near else ""
            case "string_type" if isinstance(node, yaml.SequenceNode):
                return ": write it as one text with commas"
            case "string_type" if isinstance(node, yaml.ScalarNode) and node.tag in _NOT_TEXT:
                return ": put it in quotes"
            case "tuple_type" | "list_type" | "set_type":
                return ": write it as [first, second], even with one entry"
            case "string_pattern_mismatch":
                field = field_at(self._root, place)
                default: Any = None if field is None else field.default
                return f": write it as {default}" if isinstance(default, str) else ""
        return ""

    def _read_share(self, place: Place) -> "_Share | None":
        node = node_at(self._tree, place)
        if not isinstance(node, yaml.ScalarNode) or is_secret(self._root, place):
            return None
        found = _PERCENT.fullmatch(node.value)
        if found is not None:
            return _Share(found[0], float(found[1].replace(",", ".")) / 100)
        is_ratio = str(place[-1]).endswith("_ratio_below") if place else False
        if is_ratio and re.fullmatch(r"[1-9]\d?(?:\.\d+)?", node.value) and float(node.value) > 1:
            return _Share(f"{node.value}%", float(node.value) / 100)
        return None


@dataclass(frozen=True)
class _Share:
    """A percentage as the user wrote it, and the share that it stands for."""

    text: str
    share: float

    def __str__(self) -> str:
        return self.text

    @property
    def value(self) -> str:
        """The share as settings write it: ``0.15``."""
        return f"{self.share:.6g}"


def _is_caused_by_others(mistake: ErrorDetails, found: Sequence[ErrorDetails]) -> bool:
    """Return whether a list is too short only because of mistakes in its entries."""
    place = mistake["loc"]
    return mistake["type"] == "too_short" and any(
        each["loc"][: len(place)] == place and len(each["loc"]) > len(place) for each in found
    )


def _common_length(one: Place, other: Place) -> int:
    """Return how many parts both paths have in common at their beginning."""
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        count += 1
    return count
