"""Parses a settings file as YAML 1.2 and names the line of each setting.

Errors quote only names, never values, because a password may stand anywhere, even outside its quotes.
"""

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from ruamel.yaml.reader import ReaderError

from policies.units import UserError

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


def parse(text: str, file: str) -> tuple[dict[str, Any], Node | None]:
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


def shown_name(key: object) -> str:
    """Return a key if it is safe to show: `password:secret`, with the space forgotten, is a key, too."""
    return str(key) if _SHOWABLE.fullmatch(str(key)) else "(not a name)"


def line_of(node: Node | None, place: tuple[int | str, ...]) -> int | None:
    """Return the line (from 1) of a setting, or of the nearest block around it in the file."""
    line = None
    for part in place:
        key, node = _find_child(node, part)
        if node is None:
            break
        line = (key or node).start_mark.line + 1
    return line


def node_at(node: Node | None, place: tuple[int | str, ...]) -> Node | None:
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
        return line, f"{shown_name(name[1]) if name else 'a setting'} is set twice"
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
    ("'\\t' that cannot start any token", "has a tab: YAML accepts only spaces"),
    ("but found another document", "a second document begins (`---`): a settings file has only one"),
    ("could not find expected ':'", "a line without a colon: write `name: value`"),
)
