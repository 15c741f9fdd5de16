"""The apply chokepoint (SSP/1 §12): the only door into the store, for events local or remote."""
