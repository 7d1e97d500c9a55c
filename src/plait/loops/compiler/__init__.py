"""LLMCompiler: numbered calls that start while the plan is being written, then a joiner."""
