"""Loads a settings file; reports every mistake with its place and remedy."""

import os
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError
from ruamel.yaml.nodes import Node

from connectors.component import read_named_file
from deploy.settings.application import Settings
from deploy.settings.schema import nearest
from deploy.settings.wording import Wording
from deploy.settings.yaml_text import parse
from policies.units import UserError


@dataclass(frozen=True)
class ReadFile:
    """A file's content as YAML, and the wording of its mistakes."""

    content: dict[str, Any]
    tree: Node | None
    wording: Wording


def load_settings(file: Path | None) -> Settings:
    """Read the file (None for the defaults) and the environment.

    Raises:
        UserError: the file cannot be read, is no YAML, or has mistakes. The message lists all of them, one a line, each
            with its line in the file and its path, or the name of its variable.
    """
    return settings_of(read_file(file))


def read_file(file: Path | None) -> ReadFile:
    """Read the file as YAML; raises as `load_settings` does."""
    content, tree = ({}, None) if file is None else parse(_read_text(file), str(file))
    return ReadFile(content, tree, Wording(Settings, tree, None if file is None else str(file), os.environ))


def settings_of(read: ReadFile) -> Settings:
    """Return the settings of a file and the environment; raises as `load_settings` does."""
    others = list(read.wording.misspelt(read.content))
    try:
        settings = Settings(**read.content)
    except SettingsError as error:
        what = str(error).partition(" from source")[0]
        raise UserError(f"environment: {what}: give such blocks as JSON, or each setting by its own name") from None
    except RecursionError:
        raise UserError("environment: nested too deep: give each setting by its own name") from None
    except ValidationError as error:
        raise UserError("\n".join([*read.wording.mistakes(error), *others])) from None
    if others:
        raise UserError("\n".join(others))
    return settings


def _read_text(file: Path) -> str:
    try:
        content = read_named_file(file, "a settings file")
        return TextIOWrapper(BytesIO(content), encoding="utf-8").read()
    except UnicodeDecodeError:
        raise UserError(f"{file}: cannot be read (not UTF-8 text): save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}){_similar_file(file)}") from None


def _similar_file(file: Path) -> str:
    """Return a file with a similar name in the same folder, if the given one does not exist."""
    try:
        others = {each.stem: each for each in file.parent.iterdir() if each.is_file()} if not file.exists() else {}
    except OSError:
        return ""
    near = nearest(file.stem, others)  # files have the same few suffixes, which would make all names similar
    return f"; did you mean {others[near]}?" if near else ""
