"""The record of every run."""

from plait.journal.redaction import redact_with as redact_with
