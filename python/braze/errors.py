"""What Braze raises and warns about. The message says what was given and what is allowed."""

__all__ = [
    "Error",
    "GraphBreakError",
    "InternalError",
    "InternalErrorWarning",
    "LimitError",
    "UnknownOptionError",
    "UserError",
    "UserTypeError",
]


class Error(RuntimeError):
    """Base of all errors that Braze raises itself. Errors of the user's program pass through unchanged."""


class UserError(Error, ValueError):
    """Something that the user gave is wrong: an option, a backend, a mode."""


class UserTypeError(UserError, TypeError):
    """The same for things of a wrong type, such as an object that can't be called."""


class UnknownOptionError(UserError, AttributeError):
    """An option of this name doesn't exist. Also an AttributeError, for `hasattr(braze.config, name)`."""


class GraphBreakError(Error):
    """`fullgraph=True` met something that can't be in a graph. Names the reason and the user's file and line."""


class LimitError(Error):
    """A limit set by an option was reached."""


class InternalError(Error):
    """A bug in Braze. Raised only under `BRAZE_STRICT=1`; otherwise the call runs in eager with a warning."""


class InternalErrorWarning(RuntimeWarning):
    """A bug in Braze was met and the call ran in eager: the result is right, only not compiled."""
