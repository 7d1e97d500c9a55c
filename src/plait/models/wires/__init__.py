"""Wires: the protocols of model endpoints. There is one, OpenAI's chat completions with its dialects."""
