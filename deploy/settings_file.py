"""Reads a settings file, and says of every mistake where it is and what to write instead."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from deploy.settings import Settings
from policies.errors import UserError
from policies.registry import POLICIES

_MAX_DEPTH = 30
"""Of blocks in blocks; no setting is half as deep."""
_MAX_BYTES = 8 * 1024 * 1024
_MAX_MISTAKES = 100
_NO_TEXT = re.compile("[\0\ud800-\udfff]")

_QUOTED = re.compile(r"""(['"])(?!<).{3,}\1""")
"""In YAML's messages: something of the file's. What it calls by itself is `'<scalar>'`, or a single character."""
_SHOWABLE = re.compile(r"[A-Za-z0-9_.*?!\[\]-]*")
"""Names of settings and clusters, and globs."""

_BLOCK = "must hold settings by name"
_WORDING = {"extra_forbidden": "no such setting", "missing": "is needed", "model_type": _BLOCK, "dict_type": _BLOCK}


class _Loader(yaml.SafeLoader):
    """Refuses, with its place, what YAML's own would end in other errors on: a thousand blocks in blocks, no date."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
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
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError):
            problem = "what looks like a number, a date or another value of YAML's is none: put it in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if _NO_TEXT.search(str(value)):
            raise yaml.MarkedYAMLError(problem="holds what no text can", problem_mark=node.start_mark)
        return value


def load_settings(file: Path | None) -> Settings:
    """Read the file (none: the defaults) and the environment.

    Raises:
        UserError: the file cannot be read, is not YAML, or holds mistakes: all of them, one a line, each with its
            line in the file and its path.
    """
    text = "" if file is None else _read(file)
    content, tree = _parse(text, file)
    try:
        return Settings(**content)
    except (SettingsError, RecursionError) as error:  # of the environment: the file's depth is bounded
        what = str(error).partition(" from source")[0] if isinstance(error, SettingsError) else "nested too deep"
        raise UserError(f"environment: {what}: give such blocks as JSON, or each setting by its own name") from None
    except ValidationError as error:
        raise UserError("\n".join(_mistakes(error, tree, file))) from None


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(_MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{file}: cannot be read ({reason})") from None
    if len(text) > _MAX_BYTES:
        raise UserError(f"{file}: is longer than {_MAX_BYTES // 1024**2} MiB: no settings are")
    return text


def _parse(text: str, file: Path | None) -> tuple[dict[str, Any], yaml.Node | None]:
    try:
        tree = yaml.compose(text, Loader=_Loader)
        content = yaml.load(text, _Loader)  # noqa: S506 - a safe one, below
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise UserError(f"{file}{f':{mark.line + 1}' if mark else ''}: {_problem(error)}") from None
    repeated = next(_repeated(tree), None)
    if repeated is not None:
        raise UserError(f"{file}:{repeated.start_mark.line + 1}: {_name(repeated.value)} is set twice")
    if content is not None and not (isinstance(content, dict) and all(isinstance(key, str) for key in content)):
        raise UserError(f"{file}: must hold settings by name, such as `kafka:` or `policies:`")
    return content or {}, tree


def _problem(error: yaml.YAMLError) -> str:
    """What YAML says; without what it quotes, which may be an unquoted password that begins with one of its signs."""
    problem = getattr(error, "problem", None) or "not YAML"
    told, hidden = _QUOTED.subn("(not shown)", problem)
    return f"{told}: put a value that begins with *, & or ! in quotes" if hidden else problem


def _name(key: object) -> str:
    """A key as it can be shown: `password:secret`, without the space, is one too."""
    return str(key) if _SHOWABLE.fullmatch(str(key)) else "(not a name)"


def _repeated(root: yaml.Node | None) -> Iterator[yaml.Node]:
    """Keys that stand twice in one mapping: YAML would silently take the last."""
    ahead, looked_at = [root], set[int]()
    while ahead:
        node = ahead.pop()
        if id(node) in looked_at:  # an alias may stand in many places, and even in itself
            continue
        looked_at.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[Any] = set()
            for key, value in node.value:
                if key.value in seen:
                    yield key
                seen.add(key.value)
                ahead.append(value)
        elif isinstance(node, yaml.SequenceNode):
            ahead.extend(node.value)


def _mistakes(error: ValidationError, tree: yaml.Node | None, file: Path | None) -> Iterator[str]:
    # The input is not shown: it may hold a secret.
    mistakes = error.errors(include_url=False, include_input=False, include_context=False)
    for mistake in mistakes[:_MAX_MISTAKES]:
        place = _line_of(tree, mistake["loc"])
        where = f"{file}:{place}" if file and place else f"{file or 'environment'}"
        yield f"{where}: {_path(mistake)}: {_message(mistake)}"
    if (more := len(mistakes) - _MAX_MISTAKES) > 0:
        yield f"{file or 'environment'}: and {more} more mistakes"


def _path(mistake: ErrorDetails) -> str:
    return ".".join(map(_name, mistake["loc"])) or "settings"


def _message(mistake: ErrorDetails) -> str:
    message = _WORDING.get(mistake["type"], mistake["msg"]).removeprefix("Value error, ")
    if mistake["type"] == "extra_forbidden" and len(mistake["loc"]) == 2 and mistake["loc"][0] == "policies":
        return f"no such policy in this version; there is {', '.join(POLICIES)}"
    return message[:1].lower() + message[1:] if message[:2].istitle() else message


def _line_of(node: yaml.Node | None, loc: Sequence[int | str]) -> int | None:
    """The line (from 1) of the setting, or of the nearest block around it that the file holds."""
    line = None
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line
