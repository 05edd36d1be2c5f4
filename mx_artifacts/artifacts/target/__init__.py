"""Target side: discovers and orders sources, receives into roots; single flight and groups."""
