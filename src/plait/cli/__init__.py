"""The command `plait`: parse, call, print. `main.main` is where it starts."""
