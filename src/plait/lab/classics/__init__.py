"""The tables of four published accounts of agents, with the models at hand and the published figures."""

from plait.lab.classics.phases import make_phase_table, replace_published_models
from plait.lab.classics.tables import crashed_results, question_suite
from plait.lab.classics.tasks import make_task_table
from plait.lab.classics.tokens import make_token_tables
from plait.lab.classics.wire import make_wire_table, read_exchanges, render_exchanges

__all__ = [
    "crashed_results",
    "make_phase_table",
    "make_task_table",
    "make_token_tables",
    "make_wire_table",
    "question_suite",
    "read_exchanges",
    "render_exchanges",
    "replace_published_models",
]
