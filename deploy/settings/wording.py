"""Turns validation errors into sentences that name the place and the remedy, and never quote the given value."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml.nodes import Node, ScalarNode, SequenceNode

from deploy.settings.schema import (
    Place,
    is_secret,
    names_at,
    nearest,
    places,
    suggest,
)
from deploy.settings.yaml_text import line_of, node_at, shown_name
from policies.registry import POLICIES

MAX_MISTAKES = 100
"""Further mistakes are counted, not listed."""
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d+)?) ?%")
_CHOICE = re.compile(r"'([^']+)'")
_NOT_TEXT = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "timestamp"))
_OF_A_KEY = "[key]"
"""The suffix that pydantic adds to the place of an invalid key."""
_BLOCKS = ("model_type", "dict_type", "model_attributes_type", "dataclass_type")


@dataclass
class Wording:
    """Words the mistakes of one file, by its name and YAML tree if there is one, and of the environment over it."""

    root: type[BaseModel]
    tree: Node | None
    file: str | None
    variables: Mapping[Place, str]
    """The variable that sets a setting, by the path of that setting."""

    def mistakes(self, error: ValidationError) -> Iterator[str]:
        """Return a line for each of the first hundred mistakes."""
        # Do not show the input, because it may contain a secret.
        found = error.errors(include_url=False, include_input=False, include_context=False)
        # A list may be too short only because of mistakes in its entries.
        blamed = {each["loc"][:length] for each in found for length in range(len(each["loc"]))}
        found = [each for each in found if each["type"] != "too_short" or each["loc"] not in blamed]
        found.sort(key=lambda each: line_of(self.tree, each["loc"]) or 0)
        for each in found[:MAX_MISTAKES]:
            yield f"{self.locate(each['loc'])}: {self._message(each)}"
        if (more := len(found) - MAX_MISTAKES) > 0:
            yield f"{self.file or 'environment'}: and {more} more mistakes"

    def locate(self, place: Place) -> str:
        """Return the place of a setting: ``headgate.yaml:3: http.port``, or ``environment: HEADGATE_HTTP__PORT``."""
        place = tuple(part for part in place if part != _OF_A_KEY)
        above = (place[:length] for length in range(len(place), 0, -1))
        variable = next((self.variables[each] for each in above if each in self.variables), None)
        if variable is None and node_at(self.tree, place) is None:
            variable = self._variable_below(place)
        if variable is not None:
            return f"environment: {variable}"
        # A variable may set something in the same block of a cluster, if the file has no such block.
        for length in range(len(place) - 1, 1, -1):
            if node_at(self.tree, place[:length]) is not None:
                break
            if (variable := self._variable_below(place[:length])) is not None:
                return f"environment: {variable}: {'.'.join(map(shown_name, place))}"
        line = line_of(self.tree, place)
        path = "".join(f"{'.' if number else ': '}{shown_name(part)}" for number, part in enumerate(place))
        return f"{self.file or 'environment'}{f':{line}' if line else ''}{path}"

    def _variable_below(self, place: Place) -> str | None:
        """Return a variable that sets something below a setting; None if there is none."""
        return next((name for each, name in self.variables.items() if place and each[: len(place)] == place), None)

    def _message(self, mistake: ErrorDetails) -> str:
        kind, place = mistake["type"], mistake["loc"]
        match kind:
            case "extra_forbidden" | "unexpected_keyword_argument":
                return self._explain_unknown(place)
            case "invalid_key" | "string_type" if kind == "invalid_key" or place[-1] == _OF_A_KEY:
                return "is no name: put it in quotes"
            case "missing" | "missing_argument":
                return "is needed"
            case "too_short":
                return "is empty: it needs at least one entry"
            case "path_type":
                return "is no path: write one in quotes"
            case kind if kind in _BLOCKS:
                is_variable = place in self.variables
                return "must be JSON that contains settings by name" if is_variable else self._explain_non_block(place)
        said = mistake["msg"].removeprefix("Value error, ")
        said = said[:1].lower() + said[1:] if said[:2].istitle() else said
        return said + self._remedy(kind, place, said)

    def _explain_unknown(self, place: Place) -> str:
        *around, name = place
        if around == ["policies"]:
            return f"no such policy in this version; there is {', '.join(POLICIES)}"
        if name == "clusters" and "clusters" in around:
            return "no such setting: overrides contain no further overrides"
        here = names_at(self.root, tuple(around))
        if (near := nearest(str(name), here)) is not None:
            return f"no such setting; did you mean {near}?"
        elsewhere = self._misplaced_name(tuple(around), str(name))
        return f"no such setting here; there is {elsewhere}" if elsewhere else f"no such setting{suggest('', here)}"

    def _misplaced_name(self, around: Place, name: str) -> str | None:
        """Return the path of the setting with this name that is nearest to the given place."""
        clusters = [str(around[1])] if around[:1] == ("clusters",) else ["NAME"]
        found = [each for each in places(self.root, clusters) if each[-1] == name]

        def distance(place: Place) -> tuple[int, int]:
            common = takewhile(lambda pair: pair[0] == pair[1], zip(place, around, strict=False))
            return -len(list(common)), len(place)

        found.sort(key=distance)
        return ".".join(map(shown_name, found[0])) if found else None

    def _explain_non_block(self, place: Place) -> str:
        names = names_at(self.root, place)
        example = f", such as {shown_name(place[-1])}: {{{names[0]}: …}}" if names and place else ""
        if "available_ratio_below" in names and (share := self._read_share(place)):
            return f"must contain settings by name: write {{available_ratio_below: {share}}}"
        return f"must contain settings by name{example}"

    def _remedy(self, kind: str, place: Place, said: str) -> str:
        if (share := self._read_share(place)) is not None:
            return f"; write {'available_ratio_below: ' if place[-1] == 'available_bytes_below' else ''}{share}"
        node = node_at(self.tree, place)
        match kind:
            case "enum" | "literal_error" if isinstance(node, ScalarNode):
                choices = _CHOICE.findall(said)
                near = nearest(node.value, choices) or next(filter(node.value.casefold().startswith, choices), None)
                return f"; did you mean {near}?" if near else ""
            case "string_type" if isinstance(node, SequenceNode):
                return ": write it as one text with commas"
            case "string_type" if isinstance(node, ScalarNode) and node.tag in _NOT_TEXT:
                return ": put it in quotes"
            case "tuple_type" | "list_type" | "set_type":
                return ": write it as [first, second], even with one entry"
        return ""

    def _read_share(self, place: Place) -> str | None:
        """Return a percentage as the share that settings write: ``0.15`` for ``15%``; None if the value is none."""
        node = node_at(self.tree, place)
        if not isinstance(node, ScalarNode) or is_secret(self.root, place):
            return None
        written = _PERCENT.fullmatch(node.value)
        return None if written is None else f"{float(written[1]) / 100:.6g}"
