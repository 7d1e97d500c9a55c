"""What a model call costs: rates, exact sums, and where a rate comes from.

Money is kept in billionths of a dollar (nano-USD, integers) between rounding and printing, so that a
table's rows add up to its total exactly. A rate that is not known gives no cost (None), never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from plait.core import Usage
from plait.core.errors import UsageError

RateKind: TypeAlias = Literal["unknown", "tokens", "per_1k", "watts"]

NANO = 1_000_000_000


class Tier(Struct, frozen=True):
    """Prices of a whole request once its input is above `above` tokens. USD per 1,000,000 tokens."""

    above: int
    input: float
    output: float
    cached: float


class Rate(Struct, frozen=True, omit_defaults=True):
    """What one model call costs, by its tokens or by its time.

    - kind "tokens": `input`, `output`, `cached` in USD per 1,000,000 tokens; `cached` is None where cached
      input has no price of its own and costs what input costs. `tiers` are for long requests.
    - kind "per_1k": electricity given as USD per 1,000 tokens, input and output alike.
    - kind "watts": electricity as watts x seconds x `tariff` (USD per kWh).
    - kind "unknown": no price is known; there is no cost.

    `source` says where the numbers are from, `date` (YYYY-MM-DD) when they were looked up.
    """

    kind: RateKind = "unknown"
    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    tiers: tuple[Tier, ...] = ()
    per_1k_tokens: float = 0.0
    watts: float = 0.0
    tariff: float = 0.0
    source: str = ""
    date: str = ""

    @property
    def known(self) -> bool:
        """There is a price, be it 0."""
        return self.kind != "unknown"

    def cost(self, usage: Usage, seconds: float = 0.0) -> float | None:
        """USD for one call, rounded to a billionth of a dollar; None where no price is known."""
        if self.kind == "unknown":
            return None
        if self.kind == "per_1k":
            # USD per 1,000 tokens is 1,000 times less than USD per 1,000,000, hence the factors below.
            return _usd(usage.tokens * _exact(self.per_1k_tokens) * 1_000_000)
        if self.kind == "watts":
            kwh = _exact(self.watts) * _exact(seconds) / 3_600_000
            return _usd(kwh * _exact(self.tariff) * NANO)
        price: Rate | Tier = self
        for tier in self.tiers:
            if usage.input_tokens > tier.above:
                price = tier
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_price = price.input if price.cached is None else price.cached
        nano = (
            (usage.input_tokens - cached) * _exact(price.input)
            + cached * _exact(cached_price)
            + usage.output_tokens * _exact(price.output)
        ) * 1000
        return _usd(nano)

    @classmethod
    def from_mapping(cls, price: Mapping[str, Any], where: str) -> Rate:
        """A rate as the user writes it. Raises `UsageError` naming `where`.

        {input, output, cached}: USD per 1,000,000 tokens. {per_1k_tokens}: USD per 1,000 tokens.
        {watts, tariff}: electricity, tariff in USD per kWh. `source` and `date` may stand beside them.
        """
        if not isinstance(price, Mapping):
            raise UsageError(f"{where} should be a table of prices, not {price!r}.", hint=_PRICE_HINT)
        words = {key: str(price[key]) for key in ("source", "date") if key in price}
        numbers = {key: value for key, value in price.items() if key not in words}
        for key, value in numbers.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value < float("inf"):
                raise UsageError(f"{where}.{key} should be a number of 0 or more, not {value!r}.")
        source, date = words.get("source", where), words.get("date", "")
        keys = set(numbers)
        if keys == {"per_1k_tokens"}:
            return cls("per_1k", per_1k_tokens=float(numbers["per_1k_tokens"]), source=source, date=date)
        if keys == {"watts", "tariff"}:
            watts, tariff = float(numbers["watts"]), float(numbers["tariff"])
            return cls("watts", watts=watts, tariff=tariff, source=source, date=date)
        if {"input", "output"} <= keys <= {"input", "output", "cached"}:
            cached = float(numbers["cached"]) if "cached" in numbers else None
            read, written = float(numbers["input"]), float(numbers["output"])
            return cls("tokens", read, written, cached, source=source, date=date)
        raise UsageError(f"{where} has the keys {', '.join(sorted(keys)) or '(none)'}.", hint=_PRICE_HINT)


_PRICE_HINT = (
    "Give input and output (and cached) in USD per million tokens, or per_1k_tokens in USD, "
    "or watts and tariff in USD per kWh."
)

UNKNOWN = Rate()
LOCAL = Rate("tokens", source="local, electricity not counted")
"""A model on the user's own machine, where no tariff was given: 0 USD, and the source says why."""


def total(costs: Iterable[float | None]) -> float | None:
    """The exact sum of costs in USD; None as soon as one of them is not known, 0.0 for none at all."""
    nano = 0
    for cost in costs:
        if cost is None:
            return None
        nano += round(cost * NANO)
    return nano / NANO


def rate_for(provider: str, name: str, own: Mapping[str, Rate] | None = None, *, date: str = "", url: str = "") -> Rate:
    """The rate of a model: the user's own price, or the bundled table's, or unknown. No network.

    `provider` is Plait's word ("openai", "local" ...; "" where only the `url` is known). `own` maps
    "provider:name", "name" or a pattern ("openrouter:*") to rates, and wins in that order. `date`
    (YYYY-MM-DD, today by default) chooses among prices that changed. The first look into the bundled
    table imports it (about 0.2 s); own and local rates don't.
    """
    own = own or {}
    spec = f"{provider}:{name}"
    for key in (spec, name):
        if key in own:
            return own[key]
    for key, rate in own.items():
        if fnmatchcase(spec, key) or fnmatchcase(name, key):
            return rate
    if provider in ("local", "ollama", "vllm", "llamacpp", "lmstudio"):
        return LOCAL
    if provider in ("scripted", "recorded") or not (provider or url):
        return UNKNOWN
    return _bundled(provider, name, date, url)


_TABLE_NAMES = {"gemini": "google", "xai": "x-ai"}


@lru_cache(maxsize=256)
def _bundled(provider: str, name: str, date: str, url: str) -> Rate:
    from datetime import UTC, datetime

    try:
        import genai_prices
        from genai_prices import data_snapshot
        from genai_prices.types import TieredPrices
    except ImportError:
        return UNKNOWN
    when = datetime.fromisoformat(date).replace(tzinfo=UTC) if date else datetime.now(UTC)
    snapshot = data_snapshot.get_snapshot()
    try:
        if provider:
            found = snapshot.find_provider_model(name, None, _TABLE_NAMES.get(provider, provider), None)
        else:
            found = snapshot.find_provider_model(name, None, None, url)
    except LookupError:
        return UNKNOWN
    prices = found[1].get_prices(when)
    fields: dict[str, Any] = {}
    starts: set[int] = set()
    for ours, theirs in (("input", "input_mtok"), ("output", "output_mtok"), ("cached", "cache_read_mtok")):
        fields[ours] = getattr(prices, theirs, None)
        if isinstance(fields[ours], TieredPrices):
            starts |= {tier.start for tier in fields[ours].tiers}
    if fields["input"] is None and fields["output"] is None:
        return UNKNOWN  # priced by something else: requests, seconds of sound, images

    def at(field: str, start: int) -> float | None:
        price = fields[field]
        if isinstance(price, TieredPrices):
            above = [tier.price for tier in price.tiers if tier.start <= start]
            price = above[-1] if above else price.base
        return None if price is None else float(price)

    def cached_at(start: int) -> float:
        price = at("cached", start)
        return (at("input", start) or 0.0) if price is None else price

    return Rate(
        "tokens",
        at("input", 0) or 0.0,
        at("output", 0) or 0.0,
        at("cached", 0),
        tuple(
            Tier(start, at("input", start) or 0.0, at("output", start) or 0.0, cached_at(start))
            for start in sorted(starts)
        ),
        source=f"genai-prices {genai_prices.__version__}, {found[0].id}/{found[1].id}",
        date=when.date().isoformat(),
    )


@lru_cache(maxsize=4096)
def _exact(number: float) -> Decimal:
    # 0.15 is meant as the decimal fraction people wrote, not as the binary one nearest to it.
    return Decimal(repr(number))


def _usd(nano: Decimal) -> float:
    return int(nano.to_integral_value(ROUND_HALF_EVEN)) / NANO
