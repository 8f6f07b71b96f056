"""Loads a settings file; reports every mistake with its place and remedy, and quotes no value."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.component import read_named_file
from connectors.http.access import HttpAccess
from connectors.kafka.connection import KafkaConnection
from connectors.pulsar.settings import PulsarAdmin
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.settings.application import Settings
from deploy.settings.schema import (
    Place,
    names_at,
    nearest,
    places,
    suggest,
    with_variables,
)
from policies.registry import POLICIES
from policies.units import UserError

# Parses a settings file as YAML 1.2 and names the line of each setting.
#
# Errors quote only names, never values, because a password may stand anywhere, even outside its quotes.

_SHOWABLE = re.compile(r"[\w.*?!\[\]-]*")
"""Names of settings and clusters, and globs."""
_QUOTED = re.compile(r"""(['"])(?!<).{3,}\1""")
"""A quotation from the file in YAML's messages; YAML's own terms are `'<scalar>'`, or a single character."""
_DUPLICATE = re.compile(r'duplicate key "(.*?)" with value', re.DOTALL)
_MERGE_TAG = "tag:yaml.org,2002:merge"
_BY_NAME = "must contain settings by name, such as `kafka:` or `policies:`"
_ALIAS = "put a value that begins with *, & or ! in quotes"


class _Constructor(SafeConstructor):
    """Names the place of a number or date that is none."""

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        """Return the value of a node."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError):
            problem = "looks like a number or a date, and is none: put it in quotes"
        raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _parse(text: str, file: str) -> tuple[dict[str, Any], Node | None]:
    """Return the content of a file, and its YAML tree, which has the line numbers.

    Raises UserError if the text is no YAML, or no mapping of settings; a sentence with its place.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    try:
        tree = yaml.compose(text)
        content = {} if tree is None else yaml.constructor.construct_document(tree)
    except YAMLError as error:
        line, what = _describe_error(error)
        raise UserError(f"{file}{f':{line}' if line else ''}: {what}") from None
    except RecursionError:
        raise UserError(f"{file}: nested too deep") from None
    if not isinstance(content, dict | None) or not all(isinstance(name, str) for name in content or ()):
        raise UserError(f"{file}: {_BY_NAME}")
    return content or {}, tree


def _shown_name(key: object) -> str:
    """Return a key if it is safe to show: `password:secret`, with the space forgotten, is a key, too."""
    return str(key) if _SHOWABLE.fullmatch(str(key)) else "(not a name)"


def _line_of(node: Node | None, place: tuple[int | str, ...]) -> int | None:
    """Return the line (from 1) of a setting, or of the nearest block around it in the file."""
    line = None
    for part in place:
        key, node = _find_child(node, part)
        if node is None:
            break
        line = (key or node).start_mark.line + 1
    return line


def _node_at(node: Node | None, place: tuple[int | str, ...]) -> Node | None:
    """Return the file's node at a place; None if the file has none there."""
    for part in place:
        _, node = _find_child(node, part)
    return node


def mappings(root: Node | None) -> Iterator[tuple[tuple[int | str, ...], MappingNode]]:
    """Yield every block with its path; a block that aliases repeat comes once."""
    ahead: list[tuple[tuple[int | str, ...], Node | None]] = [((), root)]
    seen = set[int]()
    while ahead:
        place, node = ahead.pop(0)
        if id(node) in seen:  # aliases may place a node several times, even inside itself
            continue
        seen.add(id(node))
        if isinstance(node, MappingNode):
            yield place, node
            ahead += [((*place, str(key.value)), value) for key, value in node.value]
        elif isinstance(node, SequenceNode):
            ahead += [((*place, number), value) for number, value in enumerate(node.value)]


def _find_child(node: Node | None, part: int | str) -> tuple[Node | None, Node | None]:
    """Return the key (None in a list) and the node of one part of a path, including nodes merged by `<<`."""
    if isinstance(node, SequenceNode):
        return None, node.value[part] if isinstance(part, int) and part < len(node.value) else None
    if not isinstance(node, MappingNode):
        return None, None
    for key, value in node.value:
        if key.value == str(part):
            return key, value
    merged = [value for key, value in node.value if key.tag == _MERGE_TAG]
    each = [one for value in merged for one in (value.value if isinstance(value, SequenceNode) else [value])]
    return next((child for one in each if (child := _find_child(one, part))[1] is not None), (None, None))


def _describe_error(error: YAMLError) -> tuple[int | None, str]:
    """Return the line (from 1) of an error, and a sentence about it."""
    if isinstance(error, ReaderError):
        return None, f"contains a control character (U+{error.character:04X}): save it as plain text"
    problem, mark = str(getattr(error, "problem", "")), getattr(error, "problem_mark", None)
    context, begun = getattr(error, "context", None) or "", getattr(error, "context_mark", None)
    line = None if mark is None else mark.line + 1
    if isinstance(error, DuplicateKeyError):
        name = _DUPLICATE.search(problem)
        return line, f"{_shown_name(name[1]) if name else 'a setting'} is set twice"
    if begun is not None and context.startswith(("while parsing a flow", "while scanning a quoted")):
        what = "a comma is missing before the next value"
        return begun.line + 1, f"the bracket or quote opened here is not closed, or {what}"
    for sign, sentence in _SENTENCES:
        if sign in problem:
            return line, sentence
    told, hidden = _QUOTED.subn("(not shown)", problem or "not YAML")
    return line, f"{told}: {_ALIAS}" if hidden else told


_SENTENCES = (
    (
        "mapping values are not allowed",
        "one colon too many: this line is indented deeper than the one above it, or that line has no colon, or a "
        "value with a colon in it is not in quotes",
    ),
    (
        "but found '<block",
        "is indented differently from its block: indent all lines of a block by the same number of spaces",
    ),
)


# Turns validation errors into sentences that name the place and the remedy, and never quote the given value.

_NOT_TEXT = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "timestamp"))
_OF_A_KEY = "[key]"
"""The suffix that pydantic adds to the place of an invalid key."""
_BLOCKS = ("model_type", "dict_type", "model_attributes_type", "dataclass_type")


@dataclass
class ReadFile:
    """A file, if there is one, with the environment over it. It words their mistakes."""

    content: dict[str, Any]
    tree: Node | None
    """The file's YAML."""
    file: Path | None
    variables: Mapping[Place, str]
    """The variable that sets a setting, by the path of that setting."""

    def mistakes(self, error: ValidationError) -> Iterator[str]:
        """Return a line for each mistake, in the order of the file."""
        # Do not show the input, because it may contain a secret.
        found = error.errors(include_url=False, include_input=False, include_context=False)
        # A list may be too short only because of mistakes in its entries.
        blamed = {each["loc"][:length] for each in found for length in range(len(each["loc"]))}
        found = [each for each in found if each["type"] != "too_short" or each["loc"] not in blamed]
        found.sort(key=lambda each: _line_of(self.tree, each["loc"]) or 0)
        for each in found:
            yield f"{self.locate(each['loc'])}: {self._message(each)}"

    def locate(self, place: Place) -> str:
        """Return the place of a setting: ``headgate.yaml:3: http.port``, or ``environment: HEADGATE_HTTP__PORT``."""
        place = tuple(part for part in place if part != _OF_A_KEY)
        above = (place[:length] for length in range(len(place), 0, -1))
        variable = next((self.variables[each] for each in above if each in self.variables), None)
        if variable is None and _node_at(self.tree, place) is None:
            variable = self._variable_below(place)
        if variable is not None:
            return f"environment: {variable}"
        # A variable may set something in the same block of a cluster, if the file has no such block.
        for length in range(len(place) - 1, 1, -1):
            if _node_at(self.tree, place[:length]) is not None:
                break
            if (variable := self._variable_below(place[:length])) is not None:
                return f"environment: {variable}: {'.'.join(map(_shown_name, place))}"
        line = _line_of(self.tree, place)
        path = "".join(f"{'.' if number else ': '}{_shown_name(part)}" for number, part in enumerate(place))
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
        return said + self._remedy(kind, _node_at(self.tree, place))

    def _explain_unknown(self, place: Place) -> str:
        *around, name = place
        if around == ["policies"]:
            return f"no such policy in this version; there is {', '.join(POLICIES)}"
        if name == "clusters" and "clusters" in around:
            return "no such setting: overrides contain no further overrides"
        here = names_at(Settings, tuple(around))
        if (near := nearest(str(name), here)) is not None:
            return f"no such setting; did you mean {near}?"
        elsewhere = self._misplaced_name(tuple(around), str(name))
        return f"no such setting here; there is {elsewhere}" if elsewhere else f"no such setting{suggest('', here)}"

    def _misplaced_name(self, around: Place, name: str) -> str | None:
        """Return the path of the setting with this name that is nearest to the given place."""
        clusters = [str(around[1])] if around[:1] == ("clusters",) else ["NAME"]
        found = [each for each in places(Settings, clusters) if each[-1] == name]

        def distance(place: Place) -> tuple[int, int]:
            common = takewhile(lambda pair: pair[0] == pair[1], zip(place, around, strict=False))
            return -len(list(common)), len(place)

        found.sort(key=distance)
        return ".".join(map(_shown_name, found[0])) if found else None

    def _explain_non_block(self, place: Place) -> str:
        names = names_at(Settings, place)
        example = f", such as {_shown_name(place[-1])}: {{{names[0]}: …}}" if names and place else ""
        return f"must contain settings by name{example}"

    def _remedy(self, kind: str, node: Node | None) -> str:
        match kind:
            case "string_type" if isinstance(node, SequenceNode):
                return ": write it as one text with commas"
            case "string_type" if isinstance(node, ScalarNode) and node.tag in _NOT_TEXT:
                return ": put it in quotes"
            case "tuple_type" | "list_type" | "set_type":
                return ": write it as [first, second], even with one entry"
        return ""


# Reads the file and the environment.


def load_settings(file: Path | None) -> Settings:
    """Read the file (None for the defaults) and the environment.

    Raises UserError with one line a mistake: its line in the file and its path, or the name of its variable.
    """
    return settings_of(read_file(file))


def read_file(file: Path | None) -> ReadFile:
    """Read the file as YAML, and the environment; raises as `load_settings` does."""
    written, tree = ({}, None) if file is None else _parse(_read_text(file), str(file))
    content, variables = with_variables(Settings, written, os.environ)
    return ReadFile(content, tree, file, variables)


def settings_of(read: ReadFile) -> Settings:
    """Return the settings in a read file and the environment; raises as `load_settings` does."""
    try:
        return Settings.model_validate(read.content)
    except ValidationError as error:
        raise UserError("\n".join(read.mistakes(error))) from None


def _read_text(file: Path) -> str:
    try:
        content = read_named_file(file, "a settings file")
        return TextIOWrapper(BytesIO(content), encoding="utf-8").read()
    except UnicodeDecodeError:
        raise UserError(f"{file}: cannot be read (not UTF-8 text): save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None


_FILES: Mapping[type, Callable[[Any], list[Callable[[], object]]]] = {
    KafkaConnection: lambda kafka: [kafka.for_kafka_python],
    ZooKeeperConnection: lambda each: [each.credential, *([each.tls.ssl_context] if each.tls is not None else [])],
    PulsarAdmin: lambda admin: [admin.bearer_token, lambda: admin.http_client().close()],
    AlertmanagerSettings: lambda settings: [lambda: settings.http_client().close()],
    HttpAccess: lambda access: [access.bearer_token, access.tls],
}
"""By the kind of a connection, what reads its files, and raises UserError."""


def unusable_files(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the connections that cannot be built from their files: the path of each, and the reason."""
    blocks: dict[tuple[str, ...], Any] = {
        ("kafka",): settings.kafka,
        ("alertmanager",): settings.alertmanager,
        ("http", "access"): settings.http.access,
    }
    for name, cluster in settings.clusters.items():
        blocks |= {("clusters", name, block): getattr(cluster, block) for block in ("kafka", "zookeeper", "pulsar")}
    for place, block in blocks.items():
        builds = next((builds for kind, builds in _FILES.items() if isinstance(block, kind)), lambda _: [])(block)
        if place == ("kafka",) and block is not None:  # Spark's Java client supports fewer kinds of keys than others
            builds.append(block.for_spark)
        for build in builds:
            try:
                build()
            except UserError as error:
                yield place, str(error)
