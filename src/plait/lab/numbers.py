"""Numbers of a comparison as text, for its tables and its page."""

from __future__ import annotations

from collections.abc import Sequence

from plait.runtime.costs import UNKNOWN_COST


def show_percent(share: float | None, interval: tuple[float, float] | None = None) -> str:
    """Return `67 % (47-82)`, "-" for None. 0 % and 100 % appear only for none and all."""
    if share is None:
        return "-"
    whole = min(max(round(share * 100), int(share > 0)), 99 + int(share == 1))
    return f"{whole} %" + (f" ({interval[0] * 100:.0f}-{interval[1] * 100:.0f})" if interval else "")


def show_number(value: float | None, digits: int = 0) -> str:
    """Return a number with thousands separators, "-" for None."""
    return "-" if value is None else f"{value:,.{digits}f}"


def show_usd(value: float | None, digits: int = 5) -> str:
    """Return a sum of money, "?" if it is unknown."""
    return UNKNOWN_COST if value is None else f"{value:,.{digits}f}"


def usd_digits(values: Sequence[float | None]) -> int:
    """Return the decimals at which the smallest sum above 0 has two digits, from 5 to 9."""
    for digits in range(5, 9):
        if all(not value or value >= 10.0 ** (1 - digits) for value in values):
            return digits
    return 9


def show_p(p: float | None) -> str:
    """Return the p of a test, "-" for None."""
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
