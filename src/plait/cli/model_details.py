"""What Plait knows of one model: for `plait models show`."""

from __future__ import annotations

import os
import time
from typing import Any

import click
import msgspec
from msgspec import structs

from plait.cli.output import print_table
from plait.core.text import clean
from plait.models.base import Model
from plait.models.chat import ChatModel
from plait.models.prices import describe_rate
from plait.models.rejections import list_rejections


def describe_details(model: Model) -> dict[str, Any]:
    """Return what `--json` prints: the wire, the endpoint, the key, settings, price, rate limit and abilities."""
    learned = {each.ability: each for each in list_rejections(model)}
    details: dict[str, Any] = {"model": model.spec, "name": model.name, "endpoint": model.endpoint}
    if isinstance(model, ChatModel):
        details |= {
            "wire": model.wire,
            "key": model.key_env,
            "key_is_set": bool(os.environ.get(model.key_env, "").strip()),
            "settings": msgspec.to_builtins(model.settings),
            "params": dict(model.params),
            "rate_limit": str(model.rate_limit) if model.rate_limit is not None else None,
        }
    stated = getattr(model, "stated_abilities", ())
    abilities: list[dict[str, Any]] = []
    for name, able in structs.asdict(model.abilities).items():
        abilities.append({"ability": name, "value": able, "source": "plait.toml" if name in stated else "table"})
        if name not in stated and able and (seen := learned.get(name)) is not None:
            dates = {"date": _date(seen.at), "said": seen.said, "expires": _date(seen.expires)}
            abilities[-1] |= {"value": False, "source": "learned", **dates}
    return {**details, "price": describe_rate(model.rate) if model.rate.is_known else None, "abilities": abilities}


def print_details(details: dict[str, Any]) -> None:
    """Print the details of a model as lines, and its abilities as a table."""
    key = details.get("key")
    lines = {
        "wire": details.get("wire"),
        "endpoint": details["endpoint"],
        "key": f"{key} ({'set' if details['key_is_set'] else 'not set'})" if key else "",
        "settings": _join(details.get("settings")),
        "params": _join(details.get("params")),
        "price": details["price"] or "not known",
        "rate limit": details.get("rate_limit"),
    }
    click.echo(details["model"])
    for name, value in lines.items():
        if value:
            click.echo(f"  {name:<10}  {clean(str(value))}")
    click.echo()
    rows = []
    for each in details["abilities"]:
        source = each["source"]
        if source == "learned":
            source = f'learned on {each["date"]}, expires {each["expires"]}: "{clean(each["said"])}"'
        rows.append([each["ability"], "yes" if each["value"] else "no", source])
    print_table(["ability", "", "from"], rows)


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _join(values: dict[str, Any] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in (values or {}).items())
