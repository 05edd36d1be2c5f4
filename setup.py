"""Build the compiled part of mx_artifacts/bulk; all else is in pyproject.toml.

It is no module of Python's, but a library for ctypes, and has a name that nobody takes for one
(pkgutil and its users import what ends in ".so"). What cannot build it does without: then
everything works, and takes longer.
"""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildLibrary(build_ext):
    """Gives a library the file name that mx_artifacts/bulk/library.py looks for."""

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', '/')}.so.1"


setup(
    cmdclass={"build_ext": BuildLibrary},
    ext_modules=[
        Extension(
            "mx_artifacts.bulk.libbulk",
            ["mx_artifacts/bulk/bulk.c"],
            extra_compile_args=["-std=gnu11", "-O2", "-Wall", "-Wextra"],
            optional=True,
        )
    ],
)
