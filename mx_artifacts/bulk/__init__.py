"""Work on thousands of small files in one call: in C if `bulk.c` was built, otherwise in Python.

Each module has such calls in both languages; `library.py` loads the compiled part (docs/adr/0020).
"""
