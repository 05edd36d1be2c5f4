"""Build the compiled part of mx_artifacts/bulk; all else is in pyproject.toml.

It is no module of Python's, but a library for ctypes. What cannot build it does without: then
everything works, and takes longer.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "mx_artifacts.bulk._bulk",
            ["mx_artifacts/bulk/bulk.c"],
            extra_compile_args=["-std=gnu11", "-O2", "-Wall", "-Wextra"],
            optional=True,
        )
    ]
)
