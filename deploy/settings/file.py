"""Loads a settings file; reports every mistake with its place and remedy."""

import os
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml.nodes import Node

from connectors.component import read_named_file
from deploy.settings.application import Settings
from deploy.settings.schema import with_variables
from deploy.settings.wording import Wording
from deploy.settings.yaml_text import parse
from policies.units import UserError


@dataclass(frozen=True)
class ReadFile:
    """The content of a file and the environment, the file's YAML, and the wording of their mistakes."""

    content: dict[str, Any]
    tree: Node | None
    wording: Wording


def load_settings(file: Path | None) -> Settings:
    """Read the file (None for the defaults) and the environment.

    Raises UserError with one line a mistake: its line in the file and its path, or the name of its variable.
    """
    return settings_of(read_file(file))


def read_file(file: Path | None) -> ReadFile:
    """Read the file as YAML, and the environment; raises as `load_settings` does."""
    written, tree = ({}, None) if file is None else parse(_read_text(file), str(file))
    content, variables = with_variables(Settings, written, os.environ)
    return ReadFile(content, tree, Wording(Settings, tree, None if file is None else str(file), variables))


def settings_of(read: ReadFile) -> Settings:
    """Return the settings in a read file and the environment; raises as `load_settings` does."""
    try:
        return Settings.model_validate(read.content)
    except ValidationError as error:
        raise UserError("\n".join(read.wording.mistakes(error))) from None


def _read_text(file: Path) -> str:
    try:
        content = read_named_file(file, "a settings file")
        return TextIOWrapper(BytesIO(content), encoding="utf-8").read()
    except UnicodeDecodeError:
        raise UserError(f"{file}: cannot be read (not UTF-8 text): save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
