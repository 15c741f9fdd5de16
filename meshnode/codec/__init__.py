"""Bytes to values and back: deterministic CBOR, COSE_Sign1, Ed25519, stream framing. Knows no SSP/1."""
