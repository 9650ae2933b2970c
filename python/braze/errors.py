"""What Braze raises and warns about. The message says what was given and what is allowed."""

__all__ = [
    "BackendError",
    "Error",
    "GraphBreakError",
    "InternalError",
    "InternalErrorWarning",
    "LimitError",
    "RecompileError",
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
    """Something can't be in a graph where that is an error: under `fullgraph=True`, in `error_on_graph_break(True)`,
    for functions of `forbid_in_graph`. Names the reason and the user's file and line."""


class LimitError(Error):
    """A limit set by an option was reached."""


class RecompileError(Error):
    """The stance is `fail_on_recompile`, and something would have been compiled. Names the guard and both values."""


class BackendError(Error):
    """A backend raised, or returned something else than a backend must. Names the backend and the program's line."""


class InternalError(Error):
    """A bug in Braze. Raised only under `BRAZE_STRICT=1`; otherwise the call runs in eager with a warning."""


class InternalErrorWarning(RuntimeWarning):
    """A bug in Braze was met and the call ran in eager: the result is right, only not compiled."""
