"""Makes text from elsewhere safe to print: names may contain terminal control sequences."""

import re

# C0 except tab and line feed, DEL, C1 (0x9b begins an escape sequence), and the characters that turn the direction of
# text or end a line unseen.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def printable(text: str) -> str:
    """The text with its control characters spelled out, so that a terminal obeys none of them."""
    return _UNSAFE.sub(_spelled, text)


def printable_line(text: str) -> str:
    """The same in one line: line feeds are spelled out, too, so that a name cannot imitate another line of output."""
    if text.isprintable():
        return text
    return printable(text).replace("\n", "\\n")


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
