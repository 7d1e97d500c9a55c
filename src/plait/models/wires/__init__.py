"""Wires: the protocols of model endpoints."""
