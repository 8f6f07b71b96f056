"""The `headgate` command: what a user can mend is one line (or one a mistake), also while the command is loaded."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console

from policies.errors import UserError

_USER_ERROR = 2
_INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command; a user's mistake ends it with status 2."""
    os.umask(0o077)  # what we and our JVMs write is for our own user alone
    sys.exit(_guarded(_command))


def _command() -> None:
    # Not above: it loads the policies of installed packages, and one that cannot be loaded is the user's to mend, too.
    from deploy.commands import app

    app()


def _guarded(command: Callable[[], object]) -> int:
    try:
        command()
    except UserError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(str(error), style="red", markup=False)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else _USER_ERROR
    return 0


if __name__ == "__main__":
    main()
