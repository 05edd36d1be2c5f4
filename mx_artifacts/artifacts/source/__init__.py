"""Publishing side: readiness, sealing, the record and its heartbeat, watching roots for changes."""
