"""Entry point of the `headgate` command: a mistake that the user can fix is printed as one line, without a traceback.

Any other error shows where it happened, but neither values of variables nor secrets.
"""

import errno
import gc
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from policies.errors import UserError

_UNEXPECTED = 1
_USER_ERROR = 2
_INTERRUPTED = 130
_STANDARD_ERROR = 2
_GARBAGE_AFTER_OBJECTS = 50_000
"""Thousands of objects are made when modules are loaded, and all of them stay: Python looks each 700 for garbage."""
_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def main() -> NoReturn:
    """Run the command; a user's mistake ends it with status 2."""
    os.umask(0o077)  # what we and our JVMs write is for our own user alone
    _settle_streams()
    gc.set_threshold(_GARBAGE_AFTER_OBJECTS)
    threading.excepthook = _tell_of_thread
    sys.exit(_guarded(_command))


def _settle_streams() -> None:
    """Standard streams that are closed lead nowhere, or a socket of ours got their number; what is written is UTF-8.

    A terminal keeps its encoding: what that has not is spelled out.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(number, True)  # noqa: FBT003 - the library's signature
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(_STANDARD_ERROR, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def _command() -> None:
    # Not above: a mistake in it is told as any other.
    from deploy.commands.root import app

    app()


def _guarded(command: Callable[[], object]) -> int:
    try:
        command()
    except UserError as error:
        from deploy.commands.console import sentence_console, shown_error

        console = sentence_console(stderr=True)
        console.print(shown_error(str(error)), style="red", markup=False)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else _USER_ERROR
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _NOT_WRITTEN:
            return _unheard(error)
        _tell(error)
        return _UNEXPECTED
    return 0


def _unheard(error: OSError) -> int:
    """Standard output takes nothing more; what is still to be written to it goes nowhere, or Python would try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stderr.write(f"the output cannot be written: {error.strerror}\n")
    return _USER_ERROR


def _tell(error: BaseException) -> None:
    from deploy.commands.console import shown_error

    sys.stderr.write(shown_error("".join(traceback.format_exception(error))))


def _tell_of_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
        _tell(failed.exc_value)


if __name__ == "__main__":
    main()
