"""What pyproject.toml can't say: the compiled core, which is left out where there is no C compiler.

PERSEID_CORE_CHECKS=1 compiles it with bounds checks, for `make fuzz`.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE, TYPES = "src/perseid/core/batch.py", "src/perseid/core/batch.pxd"

checks = os.environ.get("PERSEID_CORE_CHECKS") == "1"
core = Extension("perseid.core.batch", [SOURCE], depends=[TYPES], extra_compile_args=["-O3"])
modules = cythonize(
    [core],
    build_dir="build/core-checks" if checks else "build/core",
    compiler_directives={"boundscheck": checks},
    force=checks,
    quiet=True,
)
for module in modules:
    module.optional = True  # cythonize forgets it
setup(ext_modules=modules)
