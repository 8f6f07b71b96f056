"""Reduces the cause of a failed query to one line: Spark wraps it in several exceptions and stack traces."""

import re

_LONGEST = 300
_NAMED = re.compile(r"(?:[a-z]\w*\.)*([A-Z]\w*(?:Error|Exception))\b(?:: ?([^\n]*))?")
"""An exception's name, with or without its package, and its message on the same line."""
_WRAPPERS = frozenset(
    {"SparkException", "StreamingQueryException", "PythonException", "ExecutionException", "Py4JJavaError", "Exception"}
)
_ENDS = re.compile(r"\s*(?:SQLSTATE: \w+|Driver stacktrace:).*")


def cause_in_one_line(error: BaseException) -> str:
    """Return the root cause, such as ``RecordTooLargeException: The message is 26733012 bytes …``."""
    text = str(error)
    named = [found for found in _NAMED.finditer(text) if found[1] not in _WRAPPERS]
    # A stack trace ends with its root cause; without one, the root cause is at the end of the line.
    roots = [found for found in named if text[: found.start()].endswith("Caused by: ")] or named
    if roots:
        return _short(f"{roots[-1][1]}: {roots[-1][2] or ''}".rstrip(": "))
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return _short(first)


def _short(line: str) -> str:
    told = _ENDS.sub("", line).strip()
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]} …"
