"""The built-in guards of a run, and the adapter that makes a guard of a hook."""
