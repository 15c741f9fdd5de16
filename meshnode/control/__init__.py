"""The local control API: a server beside the running node, a client for the CLI."""
