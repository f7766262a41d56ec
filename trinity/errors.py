"""The one exception that a user sees as a sentence."""


class UserError(Exception):
    """A mistake that the user can mend.

    The message is one sentence that names the offending value and says what to do. Console scripts print it
    without a stack trace and exit with a code other than 0.
    """
