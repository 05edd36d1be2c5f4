"""Source side: waits for the engine, seals, announces, sends heartbeats, watches cache roots."""
