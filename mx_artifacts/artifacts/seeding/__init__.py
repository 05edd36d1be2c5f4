"""A target that serves on what it fetches, from the first bytes."""
