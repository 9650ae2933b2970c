"""Builds braze_interp_test, the interpreter with hooks that do what CPython does, with the C compiler alone."""

import hashlib
import pathlib
import shutil
import subprocess
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = "-shared -fPIC -O1 -g -DNDEBUG -fwrapv -fno-strict-aliasing -fvisibility=hidden -Wall -Wextra -Werror"
LENIENT = "-Wno-unused-parameter -Wno-missing-field-initializers"


def build() -> pathlib.Path:
    """The folder that holds the extension, built anew when a source has changed."""
    folder = ROOT / "frontend" / "cpython"
    sources = [ROOT / "tests" / "frontend" / "interp_module.c", *sorted(folder.glob("*/*.c"))]
    digest = hashlib.sha256((FLAGS + sysconfig.get_config_var("VERSION")).encode())
    for file in [*sources, *sorted(folder.rglob("*.h")), *sorted(folder.rglob("*.def"))]:
        digest.update(file.read_bytes())
    out = ROOT / "build" / "interp_test" / digest.hexdigest()[:16]
    module = out / "braze_interp_test.so"
    if not module.exists():
        out.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("cc") or sysconfig.get_config_var("CC").split()[0]
        include = sysconfig.get_paths()["include"]
        command = [compiler, *FLAGS.split(), *LENIENT.split(), f"-I{ROOT}", "-isystem", include, *map(str, sources)]
        subprocess.run([*command, "-o", str(module)], check=True)
    return out
