"""The error type for mistakes that the user can fix."""


class UserError(Exception):
    """Something the user can mend.

    The message names the place and the remedy; the command prints it in one line, without a traceback.
    """
