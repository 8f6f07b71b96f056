"""Prints the modules that are loaded, as one of several commands in a process."""

import sys

print(*sys.modules)  # noqa: T201 - a command
