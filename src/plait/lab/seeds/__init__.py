"""The classic tables of five well-known agents, drawn from a comparison with whatever models are at hand."""

from plait.lab.seeds.asking import asked, product_of
from plait.lab.seeds.combining import Combination, Combined, combined
from plait.lab.seeds.doing import Did, Doing, doing
from plait.lab.seeds.drawn import Drawn
from plait.lab.seeds.wire_text import markdown_of, text_of
from plait.lab.seeds.wiring import Answered, Exchange, Piece, Sent, exchanges
from plait.lab.seeds.working import Side, Work, Working, working

__all__ = [
    "Answered",
    "Combination",
    "Combined",
    "Did",
    "Doing",
    "Drawn",
    "Exchange",
    "Piece",
    "Sent",
    "Side",
    "Work",
    "Working",
    "asked",
    "combined",
    "doing",
    "exchanges",
    "markdown_of",
    "product_of",
    "text_of",
    "working",
]
