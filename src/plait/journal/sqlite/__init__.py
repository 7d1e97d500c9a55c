"""The journal's store in SQLite. Nothing outside this package knows SQLite, a table, or a path of a journal's files."""
