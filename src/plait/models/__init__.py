"""What answers a think effect. `resolve` makes a model from `provider:name`; heavy parts load when used."""

from plait.models.base import Abilities, Ability, Model, OnText, Request, Response
from plait.models.prices import Rate, rate_for, total

__all__ = ["Abilities", "Ability", "Model", "OnText", "Rate", "Request", "Response", "rate_for", "total"]
