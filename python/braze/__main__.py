"""`python -m braze script.py args...`: runs a script (or `-m module`, `-c code`) with torch.compile meaning Braze."""

import os
import runpy
import sys
from collections.abc import Sequence

from . import install

USAGE = "usage: python -m braze (script.py | -m module | -c code) [arguments...]"


def main(arguments: Sequence[str]) -> None:
    if not arguments or (arguments[0].startswith("-") and (arguments[0] not in ("-m", "-c") or len(arguments) < 2)):
        given = " ".join(arguments) or "nothing"
        sys.exit(f"{USAGE}\ngot {given}")
    install()
    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        sys.path[0] = os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[0] = ""
        main_module = sys.modules["__main__"].__dict__
        exec(
            compile(rest[0], "<string>", "exec"), {"__name__": "__main__", "__builtins__": main_module["__builtins__"]}
        )
    else:
        if not os.path.exists(first):
            sys.exit(f"{USAGE}\ncan't open {first!r}: there is no such file")
        sys.argv = [first, *rest]
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
