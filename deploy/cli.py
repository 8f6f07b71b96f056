"""The `headgate` command: what a user can mend is one line (or one a mistake), also while the command is loaded.

What nobody can mend shows where it happened, and neither values of variables nor a secret.
"""

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from deploy.console import SafeConsole, shown_error
from deploy.logs import set_up_logging
from policies.errors import UserError

_UNEXPECTED = 1
_USER_ERROR = 2
_INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command; a user's mistake ends it with status 2."""
    os.umask(0o077)  # what we and our JVMs write is for our own user alone
    threading.excepthook = _tell_of_thread
    sys.exit(_guarded(_command))


def _command() -> None:
    set_up_logging()
    # Not above: it loads the policies of installed packages, and one that cannot be loaded is the user's to mend, too.
    from deploy.commands import app

    app()


def _guarded(command: Callable[[], object]) -> int:
    try:
        command()
    except UserError as error:
        console = SafeConsole(stderr=True, soft_wrap=True, highlight=False)
        console.print(shown_error(str(error)), style="red", markup=False)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else _USER_ERROR
    except Exception as error:
        _tell(error)
        return _UNEXPECTED
    return 0


def _tell(error: BaseException) -> None:
    sys.stderr.write(shown_error("".join(traceback.format_exception(error))))


def _tell_of_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
        _tell(failed.exc_value)


if __name__ == "__main__":
    main()
