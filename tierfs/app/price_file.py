"""Read a file of prices: TOML, or JSON by its name. Unknown keys are refused: a misspelt one is no price of 0."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tierfs.app.costs import LOCAL, PriceList
from tierfs.base.words.errors import InvalidRequest, NotFound, PermissionDenied
from tierfs.base.words.names import printable

KINDS = ("write", "list", "read", "delete")
_TEXTS, _TABLES = ("currency", "source", "as_of"), ("storage", "requests", "egress", "retrieval")
_JSON = ".json"

EXAMPLE = f"""\
# Prices for: tierfs report --cost --prices FILE. tierfs knows no price: copy those of your provider, with their date.
currency = "USD"
source = ""                   # where the prices are from, as a URL
as_of = ""                    # their date, as 2026-01-31

[storage]                     # of a GiB for a month, by storage class, as your server shows it
STANDARD = 0.0
# STANDARD_IA = 0.0
# {LOCAL} = 0.0                 # of the local disk; without it, the disk costs nothing

[requests]                    # of 1000 requests
write = 0.0                   # PUT, COPY, POST, parts of uploads
list = 0.0                    # LIST; AWS has the price of PUT
read = 0.0                    # GET and HEAD
delete = 0.0

[egress]
gib = 0.0                     # of a GiB that leaves the provider's region; 0 inside

[retrieval]                   # of a GiB that is read from a class, in addition
# STANDARD_IA = 0.0
"""


def read_prices(path: Path) -> PriceList:
    """Return the prices in a file. Raises NotFound, PermissionDenied, InvalidRequest naming file and key."""
    tree = _parsed(path)
    _refuse_others(path, "", tree, (*_TEXTS, *_TABLES))
    for name in _TABLES:
        if not isinstance(tree.get(name, {}), dict):
            raise _refused(path, name, tree[name], "a table, [" + name + "]")
    _refuse_others(path, "requests.", tree.get("requests", {}), KINDS)
    _refuse_others(path, "egress.", tree.get("egress", {}), ("gib",))
    return PriceList(
        storage=_numbers(path, "storage", tree),
        requests=_numbers(path, "requests", tree),
        egress_gib=_numbers(path, "egress", tree).get("gib"),
        retrieval_gib=_numbers(path, "retrieval", tree),
        **{name: _text(path, name, tree.get(name, "")) for name in _TEXTS},
    )


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text) if path.suffix == _JSON else tomllib.loads(text)
    except FileNotFoundError as exc:
        raise NotFound(f"{path} does not exist", remedy="write one: tierfs report --example-prices > FILE") from exc
    except OSError as exc:
        kind = PermissionDenied if isinstance(exc, PermissionError) else InvalidRequest
        raise kind(f"{path} cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        form = "JSON" if path.suffix == _JSON else "TOML"
        raise InvalidRequest(f"{path} is not valid {form}: {exc}") from exc
    if not isinstance(tree, dict):
        raise InvalidRequest(f"{path} has no keys", remedy="see an example: tierfs report --example-prices")
    return tree


def _refuse_others(path: Path, prefix: str, tree: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = next((key for key in tree if key not in known), None)
    if unknown is not None:
        raise InvalidRequest(
            f"{path}: unknown price {printable(prefix + unknown)!r}", remedy=f"known names: {', '.join(known)}"
        )


def _numbers(path: Path, table: str, tree: Mapping[str, Any]) -> dict[str, float]:
    prices = dict(tree.get(table, {}))
    for name, price in prices.items():
        is_number = isinstance(price, (int, float)) and not isinstance(price, bool)
        if not is_number or not math.isfinite(price) or price < 0:
            raise _refused(path, f"{table}.{name}", price, "a number of at least 0")
    return prices


def _text(path: Path, name: str, value: object) -> str:
    if not isinstance(value, str):  # a date of TOML is one too
        return str(value)
    return value


def _refused(path: Path, name: str, value: object, expected: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {printable(name)} = {printable(repr(value))}: expected {expected}")
