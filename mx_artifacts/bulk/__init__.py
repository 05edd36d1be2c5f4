"""Many small files at once, outside the interpreter.

A cache is ten thousands of small files, for each of which the interpreter costs more than the
system call does. What is done to all of them (look, read, create, checksum) is here, a list at a
time: by the C in bulk.c, where it was built (ADR 0020), else by the Python next to it, which does
the same. Knows no bundles and no installs.
"""
