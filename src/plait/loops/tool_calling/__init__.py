"""The endpoint's own tool calling, or the same loop over JSON in text."""
