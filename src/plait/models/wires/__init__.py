"""Wires: the protocols of model endpoints. The only one is OpenAI's chat completions with its dialects."""
