"""Advice: the cheapest loop and models that meet a demand, and how certain that is."""

from plait.advice.choose import Advice, Candidate, Demand, advise
from plait.advice.rows import MeasuredLoop, MeasuredRows, read_rows

__all__ = ["Advice", "Candidate", "Demand", "MeasuredLoop", "MeasuredRows", "advise", "read_rows"]
