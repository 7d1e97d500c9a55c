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
from time import gmtime, strftime
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, structs, to_builtins

from plait.core import Reply, Usage
from plait.core.errors import ConfigError

RateKind: TypeAlias = Literal["unknown", "tokens", "per_1k", "watts"]

NANO = 1_000_000_000
ORDINARY = "default"
ORDINARY_TIERS = ("", ORDINARY, "standard", "auto", "on_demand")
"""The service tiers of the ordinary price, as endpoints report them."""
HOUR_FACTOR = 2
"""Anthropic's price of tokens cached for an hour is this times the input price (pages "Pricing" and "Service tiers",
November 2026). The bundled table has only the price for five minutes."""
SERVICE_TIER = "@service_tier="
"""Stands between a model's name and the tier in the user's table of prices."""


class Tier(Struct, frozen=True):
    """Prices of a whole request whose input is longer than `above` tokens. USD per 1,000,000 tokens."""

    above: int
    input: float
    output: float
    cached: float | None
    cache_write: float | None = None
    cache_write_1h: float | None = None


class Rate(Struct, frozen=True, omit_defaults=True):
    """The price of a model call, by its tokens or by its time.

    - kind "tokens": `input`, `output`, `cached`, `cache_write`, `cache_write_1h` (kept for an hour) in USD per
      1,000,000 tokens. If `cached` or `cache_write` is None, that input costs the same as other input; if
      `cache_write_1h` is None, as other cache writes. `tiers` are for long requests.
    - kind "per_1k": electricity in USD per 1,000 tokens, input and output alike.
    - kind "watts": electricity as watts x seconds x `tariff` (USD per kWh).
    - kind "unknown": no cost.

    `service_tiers` are the rates of replies that report this service tier ("flex", "priority"); "default" is the
    ordinary one. `per_call` has USD per call of hosted tools. `source` says where the numbers come from, `date`
    (YYYY-MM-DD) when they were looked up.
    """

    kind: RateKind = "unknown"
    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    cache_write: float | None = None
    tiers: tuple[Tier, ...] = ()
    per_1k_tokens: float = 0.0
    watts: float = 0.0
    tariff: float = 0.0
    source: str = ""
    date: str = ""
    service_tiers: dict[str, Rate] = {}
    cache_write_1h: float | None = None
    per_call: dict[str, float] = {}

    @property
    def is_known(self) -> bool:
        """Return whether there is a price, even if it is 0."""
        return self.kind != "unknown"

    def has_service_tier(self, service_tier: str) -> bool:
        """Return whether there is a price for this service tier, as an endpoint reports it ("" for none)."""
        return service_tier in ORDINARY_TIERS or service_tier in self.service_tiers

    def add_service_tiers(self, rates: Mapping[str, Rate], requested: str) -> Rate:
        """Return the rate of a request for the tier `requested`, with the rates of all tiers."""
        if not rates:
            return self
        return structs.replace(rates.get(requested, self), service_tiers={ORDINARY: self, **rates})

    def cost(self, usage: Usage, seconds: float = 0.0, service_tier: str = "") -> float | None:
        """Return USD for one call, rounded to a billionth of a dollar; None for an unknown price. `service_tier` is the
        tier that the reply reports. A tier without a price costs the same as the requested one."""
        if service_tier and self.service_tiers:
            tier = ORDINARY if service_tier in ORDINARY_TIERS else service_tier
            return self.service_tiers.get(tier, self).cost(usage, seconds)
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
        written = min(usage.cache_write_tokens, usage.input_tokens - cached)
        hour = min(usage.cache_write_1h_tokens, written)
        write = price.input if price.cache_write is None else price.cache_write
        nano = (
            (usage.input_tokens - cached - written) * _exact(price.input)
            + cached * _exact(price.input if price.cached is None else price.cached)
            + (written - hour) * _exact(write)
            + hour * _exact(write if price.cache_write_1h is None else price.cache_write_1h)
            + usage.output_tokens * _exact(price.output)
        ) * 1000
        return _usd(nano)

    @classmethod
    def from_mapping(cls, price: Mapping[str, Any], where: str) -> Rate:
        """Read a rate as the user writes it. Raises `ConfigError` with `where`.

        {input, output, cached, cache_write, cache_write_1h}: USD per 1,000,000 tokens. {per_1k_tokens}: USD per 1,000
        tokens. {watts, tariff}: electricity, the tariff in USD per kWh. All but `input` and `output` are optional.
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
            "tokens": {"input", "output"}
            <= set(numbers)
            <= {"input", "output", "cached", "cache_write", "cache_write_1h"},
        }
        for kind, fits in kinds.items():
            if fits:
                return cls(kind, **numbers, source=source, date=date)
        raise ConfigError(f"{where} has the keys {', '.join(sorted(numbers)) or '(none)'}.", hint=_PRICE_HINT)


class Price(Struct, frozen=True, omit_defaults=True):
    """A price in USD, as `[prices]` in plait.toml takes it: `plait.Price(input=1.25, output=10, cached=0.125)`.

    `input`, `output`, `cached`, `cache_write` and `cache_write_1h` (kept for an hour) are per 1,000,000 tokens; the
    last three are optional. Electricity is `per_1k_tokens`, or `watts` and `tariff` (USD per kWh), and nothing else.
    `source` and `date` say where the numbers come from. Raises `ConfigError` for numbers that make no price.
    """

    input: float | None = None
    output: float | None = None
    cached: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    per_1k_tokens: float | None = None
    watts: float | None = None
    tariff: float | None = None
    source: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        _ = self.rate

    @property
    def rate(self) -> Rate:
        """Return the price as the runtime computes with it."""
        return Rate.from_mapping({"source": "plait.Price", **to_builtins(self)}, "Price")


_PRICE_HINT = (
    "Give input and output (and cached, cache_write, cache_write_1h) in USD per million tokens, or per_1k_tokens in "
    "USD, or watts and tariff in USD per kWh."
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
            words = f"{_describe_prices(rate)} USD per 1,000,000 tokens"
            for tier in rate.tiers:
                words += f"; above {tier.above:,} of input {_describe_prices(tier)}"
    words = f"{words} ({origin})" if origin else words
    for name, other in rate.service_tiers.items():
        words += f"; service tier {name}: {describe_rate(other)}"
    return words


def _describe_prices(price: Rate | Tier) -> str:
    cached = "" if price.cached is None else f", {price.cached:.15g} cached"
    written = "" if price.cache_write is None else f", {price.cache_write:.15g} cache write"
    hour = "" if price.cache_write_1h is None else f", {price.cache_write_1h:.15g} cache write for an hour"
    return f"{price.input:.15g} in{cached}{written}{hour}, {price.output:.15g} out"


def cost_of_reply(reply: Reply, rate: Rate, seconds: float) -> float | None:
    """Return the cost of a decoded reply in USD, with that of its hosted calls: the provider's own if it reported one,
    else by its rate."""
    if reply.cost_reported:
        return reply.cost
    cost = rate.cost(reply.usage, seconds, reply.service_tier)
    if not reply.hosted or rate.kind != "tokens":
        return cost
    return total((cost, *(rate.per_call.get(each.tool) for each in reply.hosted if each.billed and not each.failed)))


def round_usd(usd: Decimal) -> float:
    """Return USD rounded to a billionth of a dollar."""
    return _usd(usd * NANO)


def total(costs: Iterable[float | None]) -> float | None:
    """Return the exact sum of costs in USD: None if one of them is unknown, 0.0 for no costs."""
    nano = 0
    for cost in costs:
        if cost is None:
            return None
        nano += round(cost * NANO)
    return nano / NANO


T = TypeVar("T")


def find_by_name(names: Sequence[str], own: Mapping[str, T]) -> T | None:
    """Return what the user set for one of these names: by the exact name, in their order, or by a pattern."""
    for name in names:
        if name in own:
            return own[name]
    return next((value for key, value in own.items() if any(fnmatchcase(name, key) for name in names)), None)


def own_service_tiers(names: Sequence[str], own: Mapping[str, Rate]) -> dict[str, Rate]:
    """Return the user's prices for one of these names in each service tier, from keys `NAME@service_tier=TIER`."""
    tables: dict[str, dict[str, Rate]] = {}
    for key, rate in own.items():
        name, _, tier = key.partition(SERVICE_TIER)
        if tier:
            tables.setdefault(tier, {})[name] = rate
    found = {tier: find_by_name(names, table) for tier, table in tables.items()}
    return {tier: rate for tier, rate in found.items() if rate is not None}


def bundled_rate(provider: str, name: str, *, url: str = "", date: str = "") -> Rate:
    """Return the rate in the table of `genai-prices`; `UNKNOWN` if it has none. Uses no network.

    `provider` is Plait's word ("openai"); "" looks up the host of `url`. `date` (YYYY-MM-DD, today by default) chooses
    among prices that changed. The first call imports the table (about 0.2 s).
    """
    return _rate_on(date or strftime("%Y-%m-%d", gmtime()), provider, name, url)


@lru_cache(maxsize=256)
def _rate_on(date: str, provider: str, name: str, url: str) -> Rate:
    from datetime import UTC, datetime

    from genai_prices import __version__
    from genai_prices.types import TieredPrices

    when = datetime.fromisoformat(date).replace(tzinfo=UTC)
    found = _find_model(provider, name, url)
    if found is None:
        return UNKNOWN
    host, model = found
    prices = model.get_prices(when)
    kinds = [prices.input_mtok, prices.output_mtok, prices.cache_read_mtok, prices.cache_write_mtok]
    if kinds[:2] == [None, None]:
        return UNKNOWN  # priced by another unit: requests, seconds of audio, images

    def at(start: int) -> tuple[float, float, float | None, float | None, float | None]:
        found = []
        for price in kinds:
            if isinstance(price, TieredPrices):
                price = next((tier.price for tier in reversed(price.tiers) if tier.start <= start), price.base)
            found.append(None if price is None else float(price))
        hour = HOUR_FACTOR * found[0] if found[0] and found[3] and host.id == "anthropic" else None
        return found[0] or 0.0, found[1] or 0.0, found[2], found[3], hour

    starts = {tier.start for price in kinds if isinstance(price, TieredPrices) for tier in price.tiers}
    tiers = tuple(Tier(start, *at(start)) for start in sorted(starts))
    source = f"genai-prices {__version__}, {host.id}/{model.id}"
    base = at(0)
    return Rate("tokens", *base[:4], tiers, source=source, date=date, cache_write_1h=base[4])


def bundled_call_prices(provider: str, name: str) -> dict[str, float]:
    """Return USD per call of hosted tools by the same table. Uses no network."""
    from datetime import UTC, datetime

    found = _find_model(provider, name, "")
    prices = found[1].get_prices(datetime.now(UTC)) if found is not None else None
    fields = {"web_search": "web_searches_kcount", "file_search": "storage_searches_kcount"}
    known = {tool: getattr(prices, field, None) for tool, field in fields.items()}
    return {tool: float(price) / 1000 for tool, price in known.items() if isinstance(price, int | float | Decimal)}


@lru_cache(maxsize=256)
def bundled_context(provider: str, name: str) -> int:
    """Return the size of a model's context in tokens by the same table; 0 if it is not known. Uses no network."""
    found = _find_model(provider, name, "")
    return (found[1].context_window or 0) if found is not None else 0


def _find_model(provider: str, name: str, url: str) -> tuple[Any, Any] | None:
    """Return the provider and the model in the table of `genai-prices`, or None."""
    from genai_prices import data_snapshot

    try:
        return data_snapshot.get_snapshot().find_provider_model(name, None, provider or None, None if provider else url)
    except LookupError:
        return None


@lru_cache(maxsize=4096)
def _exact(number: float) -> Decimal:
    # 0.15 means the decimal fraction that people wrote, not the nearest binary one.
    return Decimal(repr(number))


def _usd(nano: Decimal) -> float:
    return round(nano) / NANO  # half to even
