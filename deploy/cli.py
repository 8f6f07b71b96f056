"""Entry point of the `headgate` command: a mistake of the user is printed as one line, without a traceback.

Any other error is printed with its traceback, but without values of variables and without secrets.
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

from policies.units import UserError

_UNEXPECTED = 1
_USER_ERROR = 2
_INTERRUPTED = 130
_STANDARD_ERROR = 2
_GARBAGE_AFTER_OBJECTS = 50_000
"""Loading modules creates many objects that live forever; Python's own threshold would collect every 700 objects."""
_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def main() -> NoReturn:
    """Run the command; a mistake of the user ends it with status 2."""
    os.umask(0o077)  # files that we and our JVMs write are for our own user only
    _settle_streams()
    gc.set_threshold(_GARBAGE_AFTER_OBJECTS)
    threading.excepthook = _print_thread_traceback
    sys.exit(_run_guarded(_run_command))


def _settle_streams() -> None:
    """Open closed standard streams on /dev/null, so that no socket gets their number; write UTF-8.

    A terminal keeps its encoding; characters that it cannot show are escaped.
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


def _run_command() -> None:
    # Import it here, so that an error in the import is reported like any other.
    from deploy.commands.root import app

    app()


def _run_guarded(command: Callable[[], object]) -> int:
    try:
        command()
    except UserError as error:
        from deploy.console.terminal import print_error

        print_error(error)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else _USER_ERROR
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _NOT_WRITTEN:
            return _end_without_output(error)
        _print_traceback(error)
        return _UNEXPECTED
    return 0


def _end_without_output(error: OSError) -> int:
    """Discard the rest of the output, because standard output accepts no more and Python would retry at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stderr.write(f"the output cannot be written: {error.strerror}\n")
    return _USER_ERROR


def _print_traceback(error: BaseException) -> None:
    from deploy.console.terminal import shown_error

    sys.stderr.write(shown_error("".join(traceback.format_exception(error))))


def _print_thread_traceback(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
        _print_traceback(failed.exc_value)


if __name__ == "__main__":
    main()
