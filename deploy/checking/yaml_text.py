"""Parses the YAML text of a settings file within size limits, and words syntax errors with their remedy.

Errors quote names only, never values: a password may stand anywhere, even outside its quotes.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from policies.errors import UserError

_MAX_DEPTH = 30
"""Of blocks in blocks; no setting is half as deep."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_SHOWABLE = re.compile(r"[\w.*?!\[\]-]*")
"""Names of settings and clusters, and globs."""
_ODD_INDENT = re.compile(r"^[ \t]*(?P<odd>[^\S \t\r\n\f\v]|\t)", re.MULTILINE)
_QUOTED = re.compile(r"""(['"])(?!<).{3,}\1""")
"""In YAML's messages: something of the file's. What it calls by itself is `'<scalar>'`, or a single character."""
_TEXT_TAG, _MERGE_TAG = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_SWITCH_TAG, _NUMBER_TAG = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:int"
_ODD_NUMBER = re.compile(r"[-+]?0[0-7_]+|.*:.*")
"""To YAML the one is octal, the other to the base of 60."""
_BY_NAME = "must hold settings by name, such as `kafka:` or `policies:`"


@dataclass(frozen=True)
class YamlText:
    """A file's content, and its tree with the lines."""

    content: dict[str, Any]
    tree: yaml.Node | None


class Loader(yaml.SafeLoader):
    """Refuses, with its place, what YAML's own would end in other errors on: a thousand blocks in blocks, no date."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """One node with all below it."""
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

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError):
            problem = "what looks like a number, a date or another value of YAML's is none: put it in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """The text of a node."""
        value = super().construct_scalar(node)
        if _NO_TEXT.search(str(value)):
            raise yaml.MarkedYAMLError(problem="holds what no text can", problem_mark=node.start_mark)
        return value


def parse(text: str, file: str) -> YamlText:
    """Read the text of a file.

    Raises:
        UserError: it is not YAML, or no settings by name; a sentence a line, each with its place.
    """
    text = text.removeprefix("\ufeff")
    odd = _ODD_INDENT.search(text)
    try:
        tree = yaml.compose(text, Loader=Loader)
        structure = list(_of_structure(tree))
        if structure:
            raise UserError("\n".join(f"{file}:{line}: {what}" for line, what in structure))
        content = yaml.load(text, Loader)  # noqa: S506 - a safe one, above
    except yaml.YAMLError as error:
        line, what = _told(error)
        if odd is not None and not _is_unclosed(error):
            line, what = text.count("\n", 0, odd.start("odd")) + 1, _odd_space(odd["odd"])
        raise UserError(f"{file}{f':{line}' if line else ''}: {what}") from None
    if content is not None and not isinstance(content, dict):
        raise UserError(f"{file}: {_BY_NAME}")
    return YamlText(content or {}, tree)


def shown_name(key: object) -> str:
    """A key as it can be shown: `password:secret`, without the space, is one too."""
    return str(key) if _SHOWABLE.fullmatch(str(key)) else "(not a name)"


def line_of(node: yaml.Node | None, place: tuple[int | str, ...]) -> int | None:
    """The line (from 1) of the setting, or of the nearest block around it that the file holds."""
    line = None
    for part in place:
        key, node = _below(node, part)
        if node is None:
            break
        line = (key or node).start_mark.line + 1
    return line


def node_at(node: yaml.Node | None, place: tuple[int | str, ...]) -> yaml.Node | None:
    """What the file has at a place; None when it has nothing there."""
    for part in place:
        _, node = _below(node, part)
    return node


def mappings(root: yaml.Node | None) -> Iterator[tuple[tuple[int | str, ...], yaml.MappingNode]]:
    """Every block with its path; what an alias repeats comes once."""
    yield from ((place, node) for place, node in _nodes(root) if isinstance(node, yaml.MappingNode))


def switches(root: yaml.Node | None) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Every value that is true or false to YAML, with its path, as it is written."""
    yield from ((place, node.value) for place, node in _nodes(root) if node.tag == _SWITCH_TAG)


def odd_numbers(root: yaml.Node | None) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Every number that is another one than it seems, with its path and what it is to YAML: ``010``, ``1:30``."""
    for place, node in _nodes(root):
        if isinstance(node, yaml.ScalarNode) and node.tag == _NUMBER_TAG and _ODD_NUMBER.fullmatch(node.value):
            yield place, str(Loader("").construct_yaml_int(node))


def _nodes(root: yaml.Node | None) -> Iterator[tuple[tuple[int | str, ...], yaml.Node]]:
    ahead = deque[tuple[tuple[int | str, ...], yaml.Node]]([] if root is None else [((), root)])
    looked_at = set[int]()
    while ahead:
        place, node = ahead.popleft()
        if id(node) in looked_at:  # an alias may stand in many places, and even in itself
            continue
        looked_at.add(id(node))
        yield place, node
        if isinstance(node, yaml.MappingNode):
            ahead += [((*place, str(key.value)), value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            ahead += [((*place, number), value) for number, value in enumerate(node.value)]


def _below(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """The key (None in a list) and the node of one part of a path; what `<<` merges in counts, too."""
    if isinstance(node, yaml.SequenceNode):
        return None, node.value[part] if isinstance(part, int) and part < len(node.value) else None
    if not isinstance(node, yaml.MappingNode):
        return None, None
    for key, value in node.value:
        if key.value == str(part):
            return key, value
    merged = [value for key, value in node.value if key.tag == _MERGE_TAG]
    each = [one for value in merged for one in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
    return next((found for one in each if (found := _below(one, part))[1] is not None), (None, None))


def _of_structure(tree: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Keys that stand twice in one mapping (YAML would silently take the last), and keys that are no text."""
    for place, node in mappings(tree):
        seen: set[Any] = set()
        for key, value in node.value:
            line, name = key.start_mark.line + 1, shown_name(key.value)
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.tag != _MERGE_TAG:
                yield line, f"{name} is set twice"
            elif _is_torn(key, value, node):
                yield line, f"a comma begins a new setting here, and {name} is none: write decimals with a point"
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


def _is_torn(key: yaml.Node, value: yaml.Node, around: yaml.MappingNode) -> bool:
    """Whether it is what follows the comma of ``{a: 0,15}``."""
    return (
        bool(around.flow_style)
        and isinstance(key, yaml.ScalarNode)
        and isinstance(value, yaml.ScalarNode)
        and key.value[:1].isdigit()
        and value.value == ""
    )


def _is_unclosed(error: yaml.YAMLError) -> bool:
    return str(getattr(error, "context", "")).startswith(("while parsing a flow", "while scanning a quoted"))


def _odd_space(found: str) -> str:
    what = "a tab" if found == "\t" else f"U+{ord(found):04X}, which only looks like a space"
    return f"is indented with {what}: YAML takes ordinary spaces"


def _told(error: yaml.YAMLError) -> tuple[int | None, str]:
    """The line (from 1) of what is wrong, and a sentence that says it."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    context, begun = getattr(error, "context", None) or "", getattr(error, "context_mark", None)
    line = None if mark is None else mark.line + 1
    if isinstance(error, yaml.reader.ReaderError):
        return None, f"holds a control character (U+{error.character:04X}): save it as plain text"
    if begun is not None and (unclosed := _unclosed(context, str(problem))):
        return begun.line + 1, unclosed
    for sign, sentence in _SENTENCES:
        if sign in (problem or ""):
            return line, sentence
    told, hidden = _QUOTED.subn("(not shown)", problem or "not YAML")
    return line, f"{told}: put a value that begins with *, & or ! in quotes" if hidden else told


def _unclosed(context: str, problem: str) -> str | None:
    """What was begun and never ended, as that is where to look; None for something else."""
    if context == "while parsing a flow mapping" and "'}'" in problem:
        return "the { that is opened here is not closed: a } is missing, or a comma between two settings"
    if context == "while parsing a flow sequence" and "']'" in problem:
        return "the [ that is opened here is not closed: a ] is missing, or a comma between two values"
    if context == "while parsing a flow node" and "<stream end>" in problem:
        return "the file ends within what is opened here: a } or ] is missing"
    if context == "while scanning a quoted scalar":
        return "the quote that is opened here is not closed"
    return None


_SENTENCES = (
    (
        "mapping values are not allowed",
        "a colon too many: either the line is indented deeper than the one above it, or that one has no colon, or a "
        "value with a colon in it is not in quotes",
    ),
    (
        "but found '<block mapping start>'",
        "is indented otherwise than the lines of its block: give all of them as many spaces",
    ),
    ("but found '<block sequence start>'", "is indented otherwise than its block, or a list where names are"),
    ("but found '}'", "a } that closes nothing: one too many, or its { is missing"),
    ("but found ']'", "a ] that closes nothing: one too many, or its [ is missing"),
    ("but found ','", "a comma that parts nothing: settings stand on lines of their own, or within { }"),
    ("but found '-'", "a list where names are: settings stand as `name: value`"),
    ("could not find expected ':'", "a line without a colon: settings stand as `name: value`"),
    ("'\\t' that cannot start any token", "a tab stands before a value: YAML takes ordinary spaces"),
    ("cannot start any token", "begins with a sign that YAML keeps for itself: put the value in quotes"),
    ("but found another document", "a second document begins (`---`): a settings file is one"),
    ("tag:yaml.org,2002:value", _BY_NAME),
)
