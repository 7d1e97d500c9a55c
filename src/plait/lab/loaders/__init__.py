"""Tasks from files, one module a format."""
