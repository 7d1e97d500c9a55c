"""The command `plait`. `main.main` is where it starts."""
