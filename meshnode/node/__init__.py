"""Composition: home, configuration, dialing, pairing, and the Node that people embed."""
