"""What pyproject.toml can't say: the compiled core, which is left out where there is no C compiler.

PERSEID_CORE_CHECKS=1 compiles it with bounds checks, for `make fuzz`.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

NAME = "perseid.core.batch"
SOURCE = "src/perseid/core/batch.py"

core = Extension(NAME, [SOURCE], depends=["src/perseid/core/batch.pxd"], extra_compile_args=["-O3"], optional=True)
directives = {"boundscheck": os.environ.get("PERSEID_CORE_CHECKS") == "1"}
setup(ext_modules=cythonize([core], compiler_directives=directives, quiet=True))
