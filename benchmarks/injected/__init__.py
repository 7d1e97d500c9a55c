"""Tasks in an office whose mails, pages, documents and tools hold instructions of strangers."""
