"""Messages: conversion between protobuf and core types, status codes, channels, listeners.

Messages are used here, in `client/`, in `server/` and in `worker/`; no other room sees one.
"""
