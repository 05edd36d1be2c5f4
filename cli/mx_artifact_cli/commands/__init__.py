"""One module for each verb; it exports `command`, and `main.VERBS` lists it."""
