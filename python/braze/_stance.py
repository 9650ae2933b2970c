"""`set_stance`: what all compiled functions of the process do at their next calls."""

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from . import _C
from ._backends import native, resolve
from ._options import close_matches
from .errors import UserError

__all__ = ["STANCES", "set_stance"]

_F = TypeVar("_F", bound=Callable[..., Any])

STANCES: dict[str, str] = {
    "default": "compile what is not compiled yet",
    "force_eager": "run everything in eager",
    "eager_on_recompile": "use what is compiled, run the rest in eager",
    "fail_on_recompile": "use what is compiled, raise RecompileError for the rest",
    "eager_then_compile": "run the first call in eager; the second shows which sizes vary, and is compiled",
    "aot_eager_then_compile": "the same, with the first call compiled for the backend aot_eager",
}
_current: tuple[str, Any] = ("default", None)


def _set(stance: tuple[str, Any]) -> None:
    global _current
    name, backend = stance
    _C.set_stance(name, None if backend is None else native(backend))
    _current = stance


class set_stance:
    """Sets the stance at once; `with set_stance(...)` for a block, `@set_stance(...)` for the calls of a function.

    stance: one of STANCES. force_backend: every call compiles with this backend, whatever it was compiled with; with
    the stance "default" only. skip_guard_eval_unsafe changes nothing: guards are always checked. Inside a compiled
    function the call breaks the graph.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if stance not in STANCES:
            text = f"unknown stance {stance!r}; allowed are {', '.join(STANCES)}"
            raise UserError(text + close_matches(str(stance), STANCES))
        if not isinstance(skip_guard_eval_unsafe, bool):
            raise UserError(f"skip_guard_eval_unsafe must be True or False; got {skip_guard_eval_unsafe!r}")
        if force_backend is not None and stance != "default":
            raise UserError(f"force_backend goes with the stance 'default' only; got {stance!r}")
        self._stance = (stance, None if force_backend is None else resolve(force_backend))
        self._before = _current
        _set(self._stance)

    def __enter__(self) -> None:
        _set(self._stance)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _set(self._before)

    def __call__(self, fn: _F) -> _F:
        _set(self._before)
        stance = self._stance

        @functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            before = _current
            _set(stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _set(before)

        _C.set_rule(with_stance, "control")
        return with_stance  # type: ignore[return-value]


for _control in (set_stance, set_stance.__enter__, set_stance.__exit__):
    _C.set_rule(_control, "control")
