"""What pyproject.toml can't say: the compiled core, which is left out where there is no C compiler, and the commit.

PERSEID_CORE_CHECKS=1 compiles it with bounds checks, for `make fuzz`; PERSEID_CORE_OPTIMIZE=-O0 in a third of the time,
where it need not be quick.
"""

import os
import sys
from pathlib import Path
from runpy import run_path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
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


class BuildCore(build_ext):
    """Compiles the core; in a wheel without symbols, which are nine tenths of it. `make profile` needs a checkout's."""

    def build_extensions(self):
        if not (self.inplace or self.editable_mode):
            for one in self.extensions:
                one.extra_compile_args.append("-g0")
                if sys.platform == "linux":
                    one.extra_link_args.append("-Wl,--strip-all")
        super().build_extensions()
        missing = [one.name for one in self.extensions if not Path(self.get_ext_fullpath(one.name)).exists()]
        if missing:
            self.warn(
                f"Perseid is built WITHOUT its compiled core: {len(missing)} of {len(self.extensions)} modules failed. "
                "It works, and is slower. To have the core, install a C compiler "
                "(Debian: apt-get install gcc python3-dev) and build again."
            )


def write_commit(package):
    """Leave the commit in a package that is built: the one that this sdist was made with, or the checkout's."""
    asked = run_path(str(ROOT / "src/perseid/app/commit.py"))
    path = Path(package, asked["COMMIT_FILE"])
    path.unlink(missing_ok=True)  # a hard link to the source's, in an sdist
    path.write_text(asked["commit"](ROOT / "src/perseid") + "\n", encoding="ascii")


class BuildPackage(build_py):
    """Adds the commit to what goes into a wheel."""

    def run(self):
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib, "perseid"))


class BuildSource(sdist):
    """Adds the commit to the sdist, whose build can't ask Git."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir, "src/perseid"))


setup(
    ext_modules=modules,
    cmdclass={"build_ext": BuildCore, "build_py": BuildPackage, "sdist": BuildSource},
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
