"""The command line: verbs read options, call the library and print. Begin with `main.py`."""
