"""An app of this device that shares the node which runs here, with a database of its own."""
