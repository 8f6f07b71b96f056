"""Reads a settings file, and says of every mistake where it is and what to write instead."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from deploy.settings import Settings
from policies.errors import UserError
from policies.registry import POLICIES

_QUOTED = re.compile(r"""(['"])(?!<).{3,}\1""")
"""In YAML's messages: something of the file's. What it calls by itself is `'<scalar>'`, or a single character."""
_SHOWABLE = re.compile(r"[A-Za-z0-9_.*?!\[\]-]*")
"""Names of settings and clusters, and globs."""

_BLOCK = "must hold settings by name"
_WORDING = {"extra_forbidden": "no such setting", "missing": "is needed", "model_type": _BLOCK, "dict_type": _BLOCK}


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
    except ValidationError as error:
        raise UserError("\n".join(_mistakes(error, tree, file))) from None


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{file}: cannot be read ({reason})") from None


def _parse(text: str, file: Path | None) -> tuple[dict[str, Any], yaml.Node | None]:
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
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
    for mistake in error.errors(include_url=False, include_input=False, include_context=False):
        place = _line_of(tree, mistake["loc"])
        where = f"{file}:{place}" if file and place else f"{file or 'environment'}"
        yield f"{where}: {_path(mistake)}: {_message(mistake)}"


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
