"""The checksums that Hadoop's local file system writes beside each file of a checkpoint, as `.NAME.crc`.

A file begins with `crc`, a zero and the number of bytes per sum (4 bytes, big-endian); a CRC-32 of 4 bytes follows for
each piece of that length. Spark refuses a file that differs from its sums, and does not say what to do about it.
"""

import struct
import zlib
from pathlib import Path

_HEAD = struct.Struct(">4sI")
_MAGIC = b"crc\x00"


def is_intact(path: Path) -> bool:
    """Whether a file agrees with its checksums; True if it has none, or if they cannot be read as such."""
    try:
        sums = path.with_name(f".{path.name}.crc").read_bytes()
        content = memoryview(path.read_bytes())
    except OSError:
        return True
    if len(sums) < _HEAD.size:
        return True
    magic, length = _HEAD.unpack_from(sums)
    if magic != _MAGIC or not length:
        return True
    pieces = (content[start : start + length] for start in range(0, len(content), length))
    return sums[_HEAD.size :] == b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)
