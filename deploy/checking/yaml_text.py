"""Parses the YAML text of a settings file within size limits, and explains syntax errors with their remedy.

Errors quote only names, never values, because a password may stand anywhere, even outside its quotes.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from deploy.checking.schema import (
    Place,
    field_at,
    is_number,
    is_secret,
    names_at,
    nearest,
    places,
    suggest,
    switches_of,
    variable_below,
    variable_of,
)
from policies.registry import POLICIES
from policies.units import UserError

_MAX_DEPTH = 30
"""Limit for nested blocks, more than twice the depth of any setting."""
_MOST_MERGED = 10_000
MAX_MISTAKES = 100
"""Further mistakes of one kind are not listed."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_SHOWABLE = re.compile(r"[\w.*?!\[\]-]*")
"""Names of settings and clusters, and globs."""
_ODD_INDENT = re.compile(r"^[ \t]*(?P<odd>[^\S \t\r\n\f\v]|\t)", re.MULTILINE)
_QUOTED = re.compile(r"""(['"])(?!<).{3,}\1""")
"""A quotation from the file in YAML's messages; YAML's own terms are `'<scalar>'`, or a single character."""
_TEXT_TAG, _MERGE_TAG = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_SWITCH_TAG, _NUMBER_TAG = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:int"
_LONGEST_NUMBER = 100
_ODD_NUMBER = re.compile(r"[-+]?0[0-7_]+|.*:.*")
"""YAML reads the first as an octal number, and the second as a number in base 60."""
_BY_NAME = "must contain settings by name, such as `kafka:` or `policies:`"


@dataclass(frozen=True)
class YamlText:
    """A file's content, and its YAML tree, which has the line numbers."""

    content: dict[str, Any]
    tree: yaml.Node | None


class Loader(yaml.SafeLoader):
    """Reports input with its place on which YAML would raise other errors: very deep nesting, or an invalid date."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose one node with all nodes below it."""
        if self._depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deep", problem_mark=self._mark())
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def _mark(self) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        return event.start_mark

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge blocks named by `<<`; each may merge others many times, so a few lines could become billions."""
        super().flatten_mapping(node)
        if len(node.value) > _MOST_MERGED:
            problem = f"merges blocks to more than {_MOST_MERGED} settings"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node."""
        # In base 60, thousands of digits would take long, and could not be shown.
        is_too_long = node.tag == _NUMBER_TAG and len(node.value) > _LONGEST_NUMBER
        try:
            if not is_too_long:
                return super().construct_object(node, deep)
        except (ValueError, OverflowError):
            pass
        problem = "looks like a number, a date or another value of YAML, but is invalid: put it in quotes"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Return the text of a node."""
        value = super().construct_scalar(node)
        if _NO_TEXT.search(str(value)):
            raise yaml.MarkedYAMLError(
                problem="contains a character that text cannot contain", problem_mark=node.start_mark
            )
        return value


def parse(text: str, file: str) -> YamlText:
    """Parse the text of a file.

    Raises:
        UserError: the text is no YAML, or no mapping of settings; one sentence a line, each with its place.
    """
    text = text.removeprefix("\ufeff")
    odd = _ODD_INDENT.search(text)
    try:
        tree = yaml.compose(text, Loader=Loader)
        structure = [f"{file}:{line}: {what}" for line, what in islice(_structure_errors(tree), MAX_MISTAKES)]
        if structure:
            more = [] if len(structure) < MAX_MISTAKES else [f"{file}: and maybe more mistakes"]
            raise UserError("\n".join([*structure, *more]))
        content = yaml.load(text, Loader)  # noqa: S506 - a safe one, above
    except yaml.YAMLError as error:
        line, what = _describe_error(error)
        if odd is not None and not _is_unclosed(error):
            line, what = text.count("\n", 0, odd.start("odd")) + 1, _describe_indent(odd["odd"])
        raise UserError(f"{file}{f':{line}' if line else ''}: {what}") from None
    if content is not None and not isinstance(content, dict):
        raise UserError(f"{file}: {_BY_NAME}")
    return YamlText(content or {}, tree)


def shown_name(key: object) -> str:
    """Return a key if it is safe to show: `password:secret`, with the space forgotten, is a key, too."""
    return str(key) if _SHOWABLE.fullmatch(str(key)) else "(not a name)"


def line_of(node: yaml.Node | None, place: tuple[int | str, ...]) -> int | None:
    """Return the line (from 1) of a setting, or of the nearest block around it in the file."""
    line = None
    for part in place:
        key, node = _find_child(node, part)
        if node is None:
            break
        line = (key or node).start_mark.line + 1
    return line


def node_at(node: yaml.Node | None, place: tuple[int | str, ...]) -> yaml.Node | None:
    """Return the file's node at a place; None if the file has none there."""
    for part in place:
        _, node = _find_child(node, part)
    return node


def mappings(root: yaml.Node | None) -> Iterator[tuple[tuple[int | str, ...], yaml.MappingNode]]:
    """Yield every block with its path; a block that aliases repeat comes once."""
    yield from ((place, node) for place, node in _nodes(root) if isinstance(node, yaml.MappingNode))


def switches(root: yaml.Node | None) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield every value that YAML reads as true or false: its path, and its text."""
    yield from ((place, node.value) for place, node in _nodes(root) if node.tag == _SWITCH_TAG)


def odd_numbers(root: yaml.Node | None) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield every number that YAML reads differently than it looks (``010``, ``1:30``): its path, and YAML's value."""
    for place, node in _nodes(root):
        if isinstance(node, yaml.ScalarNode) and node.tag == _NUMBER_TAG and _ODD_NUMBER.fullmatch(node.value):
            yield place, str(Loader("").construct_yaml_int(node))


def _nodes(root: yaml.Node | None) -> Iterator[tuple[tuple[int | str, ...], yaml.Node]]:
    ahead = deque[tuple[tuple[int | str, ...], yaml.Node]]([] if root is None else [((), root)])
    looked_at = set[int]()
    while ahead:
        place, node = ahead.popleft()
        if id(node) in looked_at:  # aliases may place a node several times, even inside itself
            continue
        looked_at.add(id(node))
        yield place, node
        if isinstance(node, yaml.MappingNode):
            ahead += [((*place, str(key.value)), value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            ahead += [((*place, number), value) for number, value in enumerate(node.value)]


def _find_child(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return the key (None in a list) and the node of one part of a path, including nodes merged by `<<`."""
    if isinstance(node, yaml.SequenceNode):
        return None, node.value[part] if isinstance(part, int) and part < len(node.value) else None
    if not isinstance(node, yaml.MappingNode):
        return None, None
    for key, value in node.value:
        if key.value == str(part):
            return key, value
    merged = [value for key, value in node.value if key.tag == _MERGE_TAG]
    each = [one for value in merged for one in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
    return next((found for one in each if (found := _find_child(one, part))[1] is not None), (None, None))


def _structure_errors(tree: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Yield keys that occur twice in one mapping (YAML would silently use the last), and keys that are no text."""
    for place, node in mappings(tree):
        seen: set[Any] = set()
        for key, value in node.value:
            line, name = key.start_mark.line + 1, shown_name(key.value)
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.tag != _MERGE_TAG:
                yield line, f"{name} is set twice"
            elif _is_split_decimal(key, value, node):
                yield line, f"a comma starts a new setting here, and {name} is no setting: write decimals with a point"
            elif not isinstance(key, yaml.ScalarNode):
                yield line, _BY_NAME if not place else "the name of a setting must be one word"
            elif key.tag not in (_TEXT_TAG, _MERGE_TAG):
                yield (
                    line,
                    f"the name {name} is {_KINDS.get(key.tag.rpartition(':')[2], 'no text')} to YAML: "
                    + ("put it in quotes" if place else _BY_NAME),
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))


_KINDS = {"bool": "true or false", "int": "a number", "float": "a number", "null": "nothing", "timestamp": "a date"}


def _is_split_decimal(key: yaml.Node, value: yaml.Node, around: yaml.MappingNode) -> bool:
    """Return whether a key is the part after the comma of ``{a: 0,15}``."""
    return (
        bool(around.flow_style)
        and isinstance(key, yaml.ScalarNode)
        and isinstance(value, yaml.ScalarNode)
        and key.value[:1].isdigit()
        and value.value == ""
    )


def _is_unclosed(error: yaml.YAMLError) -> bool:
    return str(getattr(error, "context", "")).startswith(("while parsing a flow", "while scanning a quoted"))


def _describe_indent(found: str) -> str:
    what = "a tab" if found == "\t" else f"U+{ord(found):04X}, which only looks like a space"
    return f"is indented with {what}: YAML accepts only ordinary spaces"


def _describe_error(error: yaml.YAMLError) -> tuple[int | None, str]:
    """Return the line (from 1) of an error, and a sentence about it."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    context, begun = getattr(error, "context", None) or "", getattr(error, "context_mark", None)
    line = None if mark is None else mark.line + 1
    if isinstance(error, yaml.reader.ReaderError):
        return None, f"contains a control character (U+{error.character:04X}): save it as plain text"
    if begun is not None and (unclosed := _describe_unclosed(context, str(problem))):
        return begun.line + 1, unclosed
    for sign, sentence in _SENTENCES:
        if sign in (problem or ""):
            return line, sentence
    told, hidden = _QUOTED.subn("(not shown)", problem or "not YAML")
    return line, f"{told}: put a value that begins with *, & or ! in quotes" if hidden else told


def _describe_unclosed(context: str, problem: str) -> str | None:
    """Describe a bracket or quote that was opened and never closed, because that is where to look; None otherwise."""
    if context == "while parsing a flow mapping" and "'}'" in problem:
        return "the { opened here is not closed: a } is missing, or a comma between two settings"
    if context == "while parsing a flow sequence" and "']'" in problem:
        return "the [ opened here is not closed: a ] is missing, or a comma between two values"
    if context == "while parsing a flow node" and "<stream end>" in problem:
        return "the file ends before the bracket opened here is closed: a } or ] is missing"
    if context == "while scanning a quoted scalar":
        return "the quote opened here is not closed"
    return None


_SENTENCES = (
    (
        "mapping values are not allowed",
        "one colon too many: this line is indented deeper than the one above it, or that line has no colon, or a "
        "value with a colon in it is not in quotes",
    ),
    (
        "but found '<block mapping start>'",
        "is indented differently from its block: indent all lines of a block by the same number of spaces",
    ),
    ("but found '<block sequence start>'", "is indented differently from its block, or is a list in place of settings"),
    ("but found '}'", "a } that closes nothing: one too many, or its { is missing"),
    ("but found ']'", "a ] that closes nothing: one too many, or its [ is missing"),
    ("but found ','", "a comma that separates nothing: write settings on separate lines, or within { }"),
    ("but found '-'", "a list in place of settings: write `name: value`"),
    ("could not find expected ':'", "a line without a colon: write `name: value`"),
    ("'\\t' that cannot start any token", "a tab is before a value: YAML accepts only ordinary spaces"),
    ("cannot start any token", "begins with a character that YAML reserves: put the value in quotes"),
    ("but found another document", "a second document begins (`---`): a settings file has only one"),
    ("tag:yaml.org,2002:value", _BY_NAME),
)


# Turns validation errors into sentences that name the place and the remedy, and never quote the given value.

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
