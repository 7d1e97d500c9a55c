"""CodeAct: the action is Python in one session."""
