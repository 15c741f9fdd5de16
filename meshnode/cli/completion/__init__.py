"""`meshnode completion`: scripts by which shells complete words, and the words that only the node's database knows."""
