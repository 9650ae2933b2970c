"""All options, in one table: `braze.config`, the environment and `compile(options=...)` are made from it."""

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import UserError

__all__ = [
    "COMPILE_OPTIONS",
    "MODES",
    "OPTIONS",
    "Option",
    "close_matches",
    "validated_compile_options",
    "validated_mode",
]


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `native` ones are handed to the extension at every change."""

    name: str
    types: tuple[type, ...]
    default: Any
    doc: str
    env: str = ""
    native: bool = False
    least: int | None = None  # of a number
    most: int | None = None

    def validated(self, value: Any) -> Any:
        # bool is an int for Python, but `threads = True` is a mistake
        wrong = isinstance(value, bool) and bool not in self.types
        if wrong or not isinstance(value, self.types):
            raise UserError(f"option {self.name!r} must be {_type_names(self.types)}; got {value!r}")
        if self.least is not None and value is not None and not value >= self.least:
            raise UserError(f"{self.name} must be at least {self.least}; got {value!r}")
        if self.most is not None and value is not None and not value <= self.most:
            raise UserError(f"{self.name} must be at most {self.most}; got {value!r}")
        return list(value) if isinstance(value, tuple) else value

    def from_text(self, text: str) -> Any:
        """The value that an environment variable's text stands for."""
        if bool in self.types and text.lower() in ("1", "true", "yes", "on"):
            return True
        if bool in self.types and text.lower() in ("0", "false", "no", "off", ""):
            return False
        if type(None) in self.types and text.lower() in ("", "none"):
            return None
        if list in self.types:
            return [part.strip() for part in text.split(",") if part.strip()]
        if int in self.types and bool not in self.types:
            try:
                return int(text)
            except ValueError:
                pass
        if float in self.types:
            try:
                return float(text)
            except ValueError:
                pass
        if str in self.types:
            return text
        raise UserError(f"environment variable {self.env} must be {_type_names(self.types)}; got {text!r}")

    def initial(self) -> Any:
        text = os.environ.get(self.env) if self.env else None
        return self.default if text is None else self.from_text(text)


def _type_names(types: Iterable[type]) -> str:
    names = ["None" if t is type(None) else "a callable" if t is Callable else t.__name__ for t in types]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]


_NONE = type(None)
OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option(
            "recompile_limit", (int,), 8, "graphs compiled for one place before it stays in eager", native=True, least=1
        ),
        Option(
            "accumulated_recompile_limit", (int,), 256, "the same for all places of a function", native=True, least=1
        ),
        Option("fail_on_recompile_limit_hit", (bool,), False, "raise LimitError at that limit", native=True),
        Option("automatic_dynamic_shapes", (bool,), True, "sizes seen to change become symbols", native=True),
        Option("strict", (bool,), False, "raise internal errors instead of running in eager", "BRAZE_STRICT", True),
        Option("disable", (bool,), False, "compile() returns what it was given", "BRAZE_DISABLE"),
        Option("backend", (str, Callable), "braze", "used where compile() is given none", "BRAZE_BACKEND"),
        Option("dynamic", (_NONE, bool), None, "used where compile() is given none", "BRAZE_DYNAMIC"),
        Option("disabled_passes", (list, tuple), [], "passes left out, by name", "BRAZE_DISABLED_PASSES", True),
        Option("isa", (str,), "", "vector instructions of the kernels; empty: the host's best", "BRAZE_ISA", True),
        Option("threads", (int,), 0, "threads that compile kernels; 0: one a core", "BRAZE_THREADS", True, 0),
        Option(
            "activation_memory_budget",
            (float, int),
            1.0,
            "how much is kept for gradients, from the least possible (0) to what costs no time (1)",
            "BRAZE_ACTIVATION_MEMORY_BUDGET",
            True,
            least=0,
            most=1,
        ),
        Option("verify", (bool,), False, "check the graph after every pass", "BRAZE_VERIFY", True),
        Option(
            "check_fakes",
            (bool,),
            False,
            "an internal error where a tensor of a trace outlives it (slow)",
            "BRAZE_CHECK_FAKES",
            True,
        ),
        Option("dump", (_NONE, Callable), None, "called with the name and the text of each stage", native=True),
        Option("fail_at", (str,), "", "provoke an internal error at this stage, for tests", native=True),
    )
}

# compile(options=...). Of torch's keys those are taken that ask for what Braze does anyway or that change speed only.
COMPILE_OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("guard_filter_fn", (_NONE, Callable), None, "which of the guards are kept: see braze.compiler"),
        Option("recompile_limit", (_NONE, int), None, "as in braze.config, for this callable", least=1),
        Option("epilogue_fusion", (bool,), True, "no effect: always on"),
        Option("max_autotune", (bool,), False, "no effect: there is one way to compile"),
        Option(
            "fallback_random",
            (bool,),
            False,
            "no effect: random numbers are always eager's, also where they are computed again",
        ),
        Option("shape_padding", (bool,), False, "no effect on CPU"),
        Option("triton.cudagraphs", (bool,), False, "no effect on CPU"),
    )
}

MODES: tuple[str, ...] = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def close_matches(name: str, allowed: Iterable[str]) -> str:
    """' (did you mean ...?)' for error messages, or ''."""
    near = difflib.get_close_matches(name, list(allowed), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def validated_compile_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """`options` of compile() with their types checked."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise UserError(f"options must be a dict; got {options!r}")
    result = {}
    for name, value in options.items():
        option = COMPILE_OPTIONS.get(name) if isinstance(name, str) else None
        if option is None:
            raise UserError(
                f"unknown option {name!r}; allowed are {', '.join(COMPILE_OPTIONS)}"
                + close_matches(str(name), COMPILE_OPTIONS)
            )
        result[name] = option.validated(value)
    return result


def validated_mode(mode: str | None) -> str:
    if mode is not None and mode not in MODES:
        raise UserError(f"unknown mode {mode!r}; allowed are {', '.join(MODES)}" + close_matches(str(mode), MODES))
    return mode or "default"
