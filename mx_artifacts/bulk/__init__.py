"""Work on thousands of small files in one call, in C where `bulk.c` was built, else in Python.

Each module gives one such call both ways; `library.py` loads the compiled part (docs/adr/0020).
"""
