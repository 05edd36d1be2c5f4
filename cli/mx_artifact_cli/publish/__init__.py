"""Options and reports of `publish`."""
