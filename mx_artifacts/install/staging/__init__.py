"""Staging: writes fetched bytes beside the root into which they will be renamed, and resumes."""
