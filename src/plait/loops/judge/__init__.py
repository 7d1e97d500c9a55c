"""The prompts of a model that judges answers. Its loop is in `plait.lab.judge`."""
