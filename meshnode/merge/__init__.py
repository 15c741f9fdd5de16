"""SSP/1 §13's decisions, pure: a row's state and its fold."""
