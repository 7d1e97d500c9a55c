"""JSON ReAct: one JSON object a turn."""
