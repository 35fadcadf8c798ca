"""What pyproject.toml can't say: the compiled core, which is left out where there is no C compiler.

PERSEID_CORE_CHECKS=1 compiles it with bounds checks, for `make fuzz`; PERSEID_CORE_OPTIMIZE=-O0 in a third of the time,
where it need not be quick.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

FOLDER = "src/perseid/core"
NAMES = sorted(path.stem for path in Path(FOLDER).glob("*.pxd"))
"""Each compiled module has a file of its C types beside it; `perseid.core.Core` has the same names."""

optimized = os.environ.get("PERSEID_CORE_OPTIMIZE", "-O3")
checks = os.environ.get("PERSEID_CORE_CHECKS") == "1"
types = [f"{FOLDER}/{name}.pxd" for name in NAMES]
core = [
    Extension(f"perseid.core.{name}", [f"{FOLDER}/{name}.py"], depends=types, extra_compile_args=[optimized])
    for name in NAMES
]
modules = cythonize(
    core,
    include_path=["src"],
    build_dir="build/core-checks" if checks else "build/core",
    compiler_directives={"boundscheck": checks},
    force=checks,
    quiet=True,
)
for module in modules:
    module.optional = True  # cythonize forgets it
setup(ext_modules=modules, options={"build_ext": {"parallel": os.cpu_count() or 1}})
