"""The view of a run: its steps, plan, requests and differences as values, text, SVG, JSON and HTML. Needs no extra."""
