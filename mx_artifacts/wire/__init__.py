"""Messages: conversion between protobuf and core types, status codes, channels, listeners.

Only this package, `client/`, `server/` and `worker/` use protobuf messages.
"""
