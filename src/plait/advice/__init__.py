"""Advice: the cheapest loop and models that meet a demand, and how sure that is."""

from plait.advice.choosing import Advice, Candidate, Demand, advise
from plait.advice.rows import Results, Row, rows_of

__all__ = ["Advice", "Candidate", "Demand", "Results", "Row", "advise", "rows_of"]
