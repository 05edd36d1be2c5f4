"""Fetching side: discovery, order of sources, single flight, groups, receiving into roots."""
