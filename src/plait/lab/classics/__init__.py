"""The classic tables of five well-known agents, drawn from a comparison with the models at hand."""

from plait.lab.classics.loops import make_loop_tables
from plait.lab.classics.phases import make_phase_table
from plait.lab.classics.tables import ClassicTable, models_by_phase, question_suite
from plait.lab.classics.tasks import make_task_table
from plait.lab.classics.wire import read_exchanges, render_exchanges, render_exchanges_markdown

__all__ = [
    "ClassicTable",
    "make_loop_tables",
    "make_phase_table",
    "make_task_table",
    "models_by_phase",
    "question_suite",
    "read_exchanges",
    "render_exchanges",
    "render_exchanges_markdown",
]
