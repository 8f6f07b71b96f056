"""Parses the YAML text of a settings file within size limits, and explains syntax errors with their remedy.

Errors quote only names, never values, because a password may stand anywhere, even outside its quotes.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import yaml

from policies.errors import UserError

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
