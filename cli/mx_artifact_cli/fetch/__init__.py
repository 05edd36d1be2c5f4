"""Options and reports of `fetch-and-install`."""
