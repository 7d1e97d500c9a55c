"""Reason, react, act, reply: four phases in one chat."""
