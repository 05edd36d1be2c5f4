"""mx-artifacts: moves JIT and compile caches between inference nodes.

Public names load on first use, so that `import mx_artifacts` costs nothing.
"""

__version__ = "0.1.0"
