"""Recommendation: the cheapest loop and models that meet a demand, and how certain that is."""

from plait.lab.recommend.choose import Candidate, Demand, Recommendation, recommend
from plait.lab.recommend.rows import MeasuredLoop, MeasuredRows, read_rows

__all__ = ["Candidate", "Demand", "MeasuredLoop", "MeasuredRows", "Recommendation", "read_rows", "recommend"]
