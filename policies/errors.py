"""The one kind of error a person can mend."""


class UserError(Exception):
    """Something the user can mend.

    The message names the place and the remedy; the command prints it in one line, without a traceback.
    """
