"""The command `plait`. It starts in `main.main`."""
