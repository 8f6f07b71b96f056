"""The error type for mistakes that the user can fix."""


class UserError(Exception):
    """A mistake that the user can fix.

    The message names the place and the remedy; the command prints it in one line, without a traceback.
    """
