"""The cost of a model call: rates, exact sums, and the sources of rates.

Plait rounds money to billionths of a dollar (nano-USD), so that a table's rows add up to its total exactly. An unknown
rate gives no cost (None), never 0. Prices come from `genai-prices`. Plait computes the sums itself, because it stores a
rate with its run, and a call's cost takes 3 microseconds instead of 170.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from plait.core import Usage
from plait.core.errors import ConfigError

RateKind: TypeAlias = Literal["unknown", "tokens", "per_1k", "watts"]

NANO = 1_000_000_000


class Tier(Struct, frozen=True):
    """Prices of a whole request whose input is longer than `above` tokens. USD per 1,000,000 tokens."""

    above: int
    input: float
    output: float
    cached: float | None


class Rate(Struct, frozen=True, omit_defaults=True):
    """The price of a model call, by its tokens or by its time.

    - kind "tokens": `input`, `output`, `cached` in USD per 1,000,000 tokens. If `cached` is None, cached input costs
      the
      same as other input. `tiers` are for long requests.
    - kind "per_1k": electricity in USD per 1,000 tokens, input and output alike.
    - kind "watts": electricity as watts x seconds x `tariff` (USD per kWh).
    - kind "unknown": no cost.

    `source` says where the numbers come from, `date` (YYYY-MM-DD) when they were looked up.
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
    def is_known(self) -> bool:
        """Return whether there is a price, even if it is 0."""
        return self.kind != "unknown"

    def cost(self, usage: Usage, seconds: float = 0.0) -> float | None:
        """Return USD for one call, rounded to a billionth of a dollar; None for an unknown price."""
        if self.kind == "unknown":
            return None
        if self.kind == "per_1k":
            # USD per 1,000 tokens is 1,000 times less than USD per 1,000,000; this explains the factors below.
            return _usd(usage.tokens * _exact(self.per_1k_tokens) * 1_000_000)
        if self.kind == "watts":
            kwh = _exact(self.watts) * _exact(seconds) / 3_600_000
            return _usd(kwh * _exact(self.tariff) * NANO)
        price: Rate | Tier = self
        if self.tiers:
            price = next((tier for tier in reversed(self.tiers) if usage.input_tokens > tier.above), self)
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
        """Read a rate as the user writes it. Raises `ConfigError` with `where`.

        {input, output, cached}: USD per 1,000,000 tokens. {per_1k_tokens}: USD per 1,000 tokens. {watts, tariff}:
        electricity, the tariff in USD per kWh. `source` and `date` are optional.
        """
        if not isinstance(price, Mapping):
            raise ConfigError(f"{where} should be a table of prices, not {price!r}.", hint=_PRICE_HINT)
        source, date = str(price.get("source", where)), str(price.get("date", ""))
        numbers: dict[str, Any] = {key: value for key, value in price.items() if key not in ("source", "date")}
        for key, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ConfigError(f"{where}.{key} should be a number of 0 or more, not {value!r}.")
            numbers[key] = float(value)
        kinds: dict[RateKind, bool] = {
            "per_1k": set(numbers) == {"per_1k_tokens"},
            "watts": set(numbers) == {"watts", "tariff"},
            "tokens": {"input", "output"} <= set(numbers) <= {"input", "output", "cached"},
        }
        for kind, fits in kinds.items():
            if fits:
                return cls(kind, **numbers, source=source, date=date)
        raise ConfigError(f"{where} has the keys {', '.join(sorted(numbers)) or '(none)'}.", hint=_PRICE_HINT)


_PRICE_HINT = (
    "Give input and output (and cached) in USD per million tokens, or per_1k_tokens in USD, "
    "or watts and tariff in USD per kWh."
)

UNKNOWN = Rate()
LOCAL = Rate("tokens", source="local, electricity not counted")
"""A model on the user's own machine without a tariff: 0 USD, and the source says why."""


def describe_rate(rate: Rate) -> str:
    """Return a rate in words, with its source."""
    origin = ", ".join(filter(None, (rate.source, rate.date)))
    match rate.kind:
        case "unknown":
            return "price not known"
        case "per_1k":
            words = f"{rate.per_1k_tokens:.15g} USD per 1,000 tokens"
        case "watts":
            words = f"{rate.watts:.15g} W at {rate.tariff:.15g} USD per kWh"
        case _:
            cached = "" if rate.cached is None else f", {rate.cached:.15g} cached"
            words = f"{rate.input:.15g} in{cached}, {rate.output:.15g} out USD per 1,000,000 tokens"
            for tier in rate.tiers:
                words += f"; above {tier.above:,} of input "
                words += f"{tier.input:.15g} in, {tier.cached:.15g} cached, {tier.output:.15g} out"
    return f"{words} ({origin})" if origin else words


def total(costs: Iterable[float | None]) -> float | None:
    """Return the exact sum of costs in USD: None if one of them is unknown, 0.0 for no costs."""
    nano = 0
    for cost in costs:
        if cost is None:
            return None
        nano += round(cost * NANO)
    return nano / NANO


def own_rate(names: Sequence[str], own: Mapping[str, Rate]) -> Rate | None:
    """Return the user's price for one of these names: by the exact name, in their order, or by a pattern."""
    for name in names:
        if name in own:
            return own[name]
    return next((rate for key, rate in own.items() if any(fnmatchcase(name, key) for name in names)), None)


@lru_cache(maxsize=256)
def bundled_rate(provider: str, name: str, *, url: str = "", date: str = "") -> Rate:
    """Return the rate in the table of `genai-prices`; `UNKNOWN` if it has none. Uses no network.

    `provider` is Plait's word ("openai"); "" looks up the host of `url`. `date` (YYYY-MM-DD, today by default) chooses
    among prices that changed. The first call imports the table (about 0.2 s).
    """
    from datetime import UTC, datetime

    from genai_prices import __version__, data_snapshot
    from genai_prices.types import TieredPrices

    when = datetime.fromisoformat(date).replace(tzinfo=UTC) if date else datetime.now(UTC)
    try:
        snapshot = data_snapshot.get_snapshot()
        host, model = snapshot.find_provider_model(name, None, provider or None, None if provider else url)
    except LookupError:
        return UNKNOWN
    prices = model.get_prices(when)
    kinds = [prices.input_mtok, prices.output_mtok, prices.cache_read_mtok]
    if kinds[:2] == [None, None]:
        return UNKNOWN  # priced by another unit: requests, seconds of audio, images

    def at(start: int) -> tuple[float, float, float | None]:
        found = []
        for price in kinds:
            if isinstance(price, TieredPrices):
                price = next((tier.price for tier in reversed(price.tiers) if tier.start <= start), price.base)
            found.append(None if price is None else float(price))
        return found[0] or 0.0, found[1] or 0.0, found[2]

    starts = {tier.start for price in kinds if isinstance(price, TieredPrices) for tier in price.tiers}
    tiers = tuple(Tier(start, *at(start)) for start in sorted(starts))
    source = f"genai-prices {__version__}, {host.id}/{model.id}"
    return Rate("tokens", *at(0), tiers, source=source, date=when.date().isoformat())


@lru_cache(maxsize=4096)
def _exact(number: float) -> Decimal:
    # 0.15 means the decimal fraction that people wrote, not the nearest binary one.
    return Decimal(repr(number))


def _usd(nano: Decimal) -> float:
    return round(nano) / NANO  # half to even
