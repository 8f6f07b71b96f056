"""Copies the agent, and the modules of Headgate that it imports, into the wheel under one name: `headgate_agent`.

A service has its own packages, so the wheel may not bring names such as `policies` or `connectors`. Therefore the
imports are written again: `connectors.sessions.agent` becomes `headgate_agent`, all others `headgate_agent._shared`.
"""

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_AGENT, _NAME, _SHARED = "connectors.sessions.agent", "headgate_agent", "headgate_agent._shared"
_IMPORT = re.compile(r"^(\s*(?:from|import) )((?:connectors|policies)\b[\w.]*)", re.MULTILINE)


class AgentHook(BuildHookInterface[Any]):
    """Fills the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Write the modules to a temporary folder, and include it."""
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-agent-"))
        sources = Path(self.root).parents[1]
        for module, file in sorted(_closure(sources, _AGENT).items()):
            copy = self._folder.joinpath(*_renamed(module).split("."))
            target = copy / "__init__.py" if file.name == "__init__.py" else copy.with_suffix(".py")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(
                _IMPORT.sub(lambda found: found[1] + _renamed(found[2]), file.read_text(encoding="utf-8"))
            )
        (self._folder / _NAME / "_shared" / "__init__.py").write_text(
            '"""The parts of Headgate that the agent uses."""\n'
        )
        (self._folder / _NAME / "py.typed").touch()
        build_data["force_include"][str(self._folder / _NAME)] = _NAME

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the temporary folder."""
        shutil.rmtree(self._folder)


def _renamed(module: str) -> str:
    if module == _AGENT or module.startswith(f"{_AGENT}."):
        return _NAME + module.removeprefix(_AGENT)
    return f"{_SHARED}.{module}"


def _closure(sources: Path, module: str) -> dict[str, Path]:
    """Return the files of a module and of all that it imports, directly or not, by the module's name."""
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found and (file := _file(sources, name)) is not None:
            found[name] = file
            waiting += [*_imports(file), *_parents(name)]
    return found


def _file(sources: Path, module: str) -> Path | None:
    path = sources.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and _IMPORT.match(f"from {node.module}"):
            yield from (str(node.module), *(f"{node.module}.{each.name}" for each in node.names))
