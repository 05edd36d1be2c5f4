"""Tests of mx_artifacts/workflows."""
