"""One peer's delivery as a state machine without I/O: bytes and time come in, effects come out."""
