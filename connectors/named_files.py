"""Reads files that a person names in a command or a setting: up to a bound, because a path may be wrong."""

import os
from pathlib import Path

from policies.errors import UserError
from policies.units import human_bytes

LIMIT_BYTES = 1_000_000
"""Settings of 500 clusters have a tenth of it; parsing this much YAML takes over a second of processor time."""


def read_named_file(file: Path, kind: str) -> bytes:
    """Return a file's content.

    Args:
        file: any path; also a pipe.
        kind: what such a file is, with its article, for the error.

    Raises:
        OSError: it cannot be read.
        UserError: it is larger than the limit.
    """
    with file.open("rb") as stream:
        content = stream.read(LIMIT_BYTES + 1)
        if len(content) > LIMIT_BYTES:
            size = os.fstat(stream.fileno()).st_size  # 0 for a pipe
            has = f"has {human_bytes(size)}" if size > LIMIT_BYTES else "is larger"
            raise UserError(f"{file}: {has}, and the limit for {kind} is {human_bytes(LIMIT_BYTES)}: name another file")
    return content
