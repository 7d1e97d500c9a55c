"""ReAct: thought, action and observation as text."""
