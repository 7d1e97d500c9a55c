"""The loop of a model that judges answers."""
