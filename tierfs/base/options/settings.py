"""Read `STORE/store.toml` and `TIERFS_*` into the settings tree of config.py, and write the template.

Unknown keys are refused, so that a misspelt one never passes for a default. Values are written as everywhere
(units.py). pydantic walks the tree and is imported only when there is something to check.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options import contradictions
from tierfs.base.options.config import Settings
from tierfs.base.options.kinds import TextKind, Unit, ValueKind
from tierfs.base.options.store_toml import line_in, section_in
from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest, NotFound, PermissionDenied, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.types import ReadPriority

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

ENVIRONMENT_PREFIX = "TIERFS_"
# Between section and key: TIERFS_READ__BUDGET_BYTES. Variables without it (TIERFS_STORE) are no settings.
_NESTED = "__"

TEMPLATE = Path(__file__).with_name("store.toml")

# By section: Python evaluates all of a section anew each time, and a list of settings asks for each.
_ANNOTATIONS: dict[type, Mapping[str, Any]] = {}

# Raw values by section and key.
Tree = dict[str, dict[str, Any]]


class Origin(StrEnum):
    """The source of a value."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and the origin of each under its name, like `read.budget_bytes`."""

    settings: Settings
    origins: Mapping[str, Origin]


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """Load the settings of a store. Raises InvalidRequest naming file and key, NotFound or PermissionDenied."""
    return load_with_origins(path, environ).settings


def load_with_origins(path: Path, environ: Mapping[str, str]) -> LoadedSettings:
    """Load the settings, the environment's above the file's above the defaults; raises what `load` raises."""
    return _loaded(text_in(path), path, environ)


def of_environment(environ: Mapping[str, str]) -> Settings:
    """Return the settings of a store that has no file yet. Raises InvalidRequest."""
    return _loaded("", TEMPLATE, environ).settings


def check(text: str, path: Path) -> LoadedSettings:
    """Return the settings of a text that is to be the file's. Raises InvalidRequest naming file and key."""
    return _loaded(text, path, {})


def names() -> frozenset[str]:
    """Return the name of every setting, like `read.budget_bytes`."""
    return frozenset(f"{section}.{key}" for section, key in _names())


def default_of(name: str) -> str:
    """Return the default of a setting as it stands in store.toml."""
    section, key = name.split(".")
    defaults = getattr(Settings(), section)
    return as_toml(annotations_of(type(defaults))[key], getattr(defaults, key))


def _loaded(text: str, path: Path, environ: Mapping[str, str]) -> LoadedSettings:
    from_file, from_environment = _parsed(text, path), _overrides(environ)
    origins = {f"{section}.{key}": Origin.DEFAULT for section, key in _names()}
    origins |= {f"{section}.{key}": Origin.FILE for section, keys in from_file.items() for key in keys}
    origins |= {f"{section}.{key}": Origin.ENVIRONMENT for section, keys in from_environment.items() for key in keys}
    if not any(from_file.values()) and not from_environment:
        return LoadedSettings(Settings(), origins)
    merged = {
        section: {**from_file.get(section, {}), **from_environment.get(section, {})}
        for section in [*from_file, *(section for section in from_environment if section not in from_file)]
    }
    loaded = _validated(merged, text, path, origins)
    contradictions.refuse_settings(loaded, str(path))
    return LoadedSettings(loaded, origins)


def default_text() -> str:
    """Return a store.toml of all sections, with every setting commented out, its default and its text."""
    # A file, written from the settings classes by tests/structure/test_prose.py: each `init` would render the same.
    return TEMPLATE.read_text(encoding="utf-8")


def annotations_of(section: type) -> Mapping[str, Any]:
    """Return the annotation of each setting in a section: its type, its ValueKind if it has one, and its text."""
    if section not in _ANNOTATIONS:
        _ANNOTATIONS[section] = get_type_hints(section, include_extras=True)
    return _ANNOTATIONS[section]


def text_in(path: Path) -> str:
    """Return the text of a file of settings. Raises what `load` raises for one that cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise NotFound(f"{path} does not exist") from exc
    except PermissionError as exc:
        raise PermissionDenied(f"{path} cannot be read") from exc
    except OSError as exc:
        raise Unavailable(f"{path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidRequest(f"{path} is not valid TOML: {exc}") from exc


def _parsed(text: str, path: Path) -> Tree:
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:  # of a number with too many digits, and of arrays in arrays, too
        raise InvalidRequest(f"{path} is not valid TOML: {exc}") from exc
    for section, keys in tree.items():
        if not isinstance(keys, dict):
            sections = ", ".join(f"[{field.name}]" for field in fields(Settings))
            raise InvalidRequest(
                f"{path}: {printable(section)} is outside of a section",
                remedy=f"put the line of its section above it, one of: {sections}",
            )
    return tree


def _overrides(environ: Mapping[str, str]) -> Tree:
    tree: Tree = {}
    for name in sorted(environ):
        section, nested, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition(_NESTED)
        if name.startswith(ENVIRONMENT_PREFIX) and nested:
            tree.setdefault(section, {})[key] = environ[name]
    return tree


def _names() -> Iterator[tuple[str, str]]:
    """Yield section and key of every setting."""
    defaults = Settings()
    for section in fields(Settings):
        for key in fields(getattr(defaults, section.name)):
            yield section.name, key.name


def _validated(tree: Tree, text: str, path: Path, origins: Mapping[str, Origin]) -> Settings:
    from pydantic import ValidationError

    try:
        checked = _settings_model().model_validate(tree)
    except ValidationError as exc:
        raise _refused(exc.errors()[0], text, path, origins) from exc
    sections = {}
    for section, keys in checked:
        default = getattr(Settings(), section)
        sections[section] = default if keys is None else type(default)(**dict(keys))
    return Settings(**sections)


@cache
def _settings_model() -> type[BaseModel]:
    """Make the model once in this process: it takes 40 ms."""
    return _model(Settings)


def _model(section: type) -> type[BaseModel]:
    """Make a pydantic model with the fields and defaults of a settings class, strict about names."""
    from pydantic import BeforeValidator, ConfigDict, create_model

    defaults = section()
    members: dict[str, Any] = {}
    for key, annotation in annotations_of(section).items():
        default = getattr(defaults, key)
        if hasattr(default, "__dataclass_fields__"):
            members[key] = (_model(type(default)) | None, None)
        else:
            members[key] = (Annotated[Any, BeforeValidator(partial(_value, annotation))], default)
    created: type[BaseModel] = create_model(section.__name__, __config__=ConfigDict(extra="forbid"), **members)
    return created


def _value(annotation: Any, written: object) -> Any:
    """Return the value of a setting as it is written. Raises ValueError that names the values it takes."""
    plain, kind = get_args(annotation)[0], kind_of(annotation)
    try:
        if plain is bool:
            return units.parse_flag(str(written))
        if kind is not None and kind.unit is not Unit.DIRECTORY:
            return _in_range(kind, 0 if kind.may_be_off and units.is_off(written) else _number(kind, written), plain)
        if not isinstance(written, str):
            raise ValueError(written)
        if _is_priority(plain):
            return None if units.is_off(written) else ReadPriority(written)
        if kind is not None and (written.startswith("~") or "\0" in written):  # a path is taken as it is
            raise ValueError(written)
        if get_args(plain) and written not in get_args(plain):
            raise ValueError(written)
        text = _text_kind(annotation)
        if text is not None and written and re.fullmatch(text.form, written) is None:
            raise ValueError(written)
    except ValueError as exc:
        raise ValueError(f"expected {allowed(annotation)}") from exc
    return written


def _number(kind: ValueKind, written: Any) -> float:
    """Return a number, or a text that is one, with a unit where there are units."""
    if kind.unit is Unit.SIZE:
        return units.parse_size(written)
    if kind.unit is Unit.DURATION:
        return units.parse_duration(written)
    number = units.decimal(written.strip()) if isinstance(written, str) else written
    if number is None or isinstance(number, bool) or not isinstance(number, (int, float)):
        raise ValueError(written)
    return number


def _in_range(kind: ValueKind, number: float, plain: type) -> float:
    if not kind.least <= number <= kind.most or (plain is int and number != int(number)):
        raise ValueError(number)
    return int(number) if plain is int else float(number)


def _is_priority(plain: Any) -> bool:
    return ReadPriority in get_args(plain)


def allowed(annotation: Any) -> str:
    """Describe the values that a setting takes, as `policy.allowed` does."""
    plain, kind = get_args(annotation)[0], kind_of(annotation)
    if plain is bool:
        return units.FLAGS
    if _is_priority(plain):
        return f"one of {', '.join(ReadPriority)}, or {units.OFF}"
    if kind is None:
        text = _text_kind(annotation)
        told = "a text" if text is None else f"{text.told}; or empty"
        return f"one of {', '.join(get_args(plain))}" if get_args(plain) else told
    if kind.unit is Unit.DIRECTORY:
        return "an absolute path, or one relative to the store's directory"
    least, most = (_written(kind, int(end) if end == int(end) else end) for end in (kind.least, kind.most))
    ends = f"of at least {least}" if kind.most == units.MAX_BYTES else f"from {least} to {most}"
    noun = {Unit.NUMBER: "a whole number", Unit.SIZE: "a size", Unit.DURATION: "a time"}[kind.unit]
    whole = " of whole seconds" if kind.unit is Unit.DURATION and plain is int else ""
    forms = {Unit.NUMBER: "", Unit.SIZE: f": {units.SIZES}", Unit.DURATION: f": {units.DURATIONS}"}[kind.unit]
    or_off = f", or {units.OFF}" if kind.may_be_off else ""
    return f"{noun}{whole} {ends}{forms}{or_off}"


def kind_of(annotation: Any) -> ValueKind | None:
    """Return the ValueKind in a setting's annotation; None for a switch, a choice or a text."""
    return next((part for part in get_args(annotation)[1:] if isinstance(part, ValueKind)), None)


def _text_kind(annotation: Any) -> TextKind | None:
    return next((part for part in get_args(annotation)[1:] if isinstance(part, TextKind)), None)


def _refused(error: ErrorDetails, text: str, path: Path, origins: Mapping[str, Origin]) -> InvalidRequest:
    """Word one error for the user: its place, the key, and the allowed values."""
    location = [str(part) for part in error["loc"]]
    name = ".".join(location)
    where = f"{path}{_line_number(text, location)}"
    named = next((full for full in origins if full == name or full.startswith(f"{name}.")), name)
    if origins.get(named) is Origin.ENVIRONMENT:
        where = "environment variable " + ENVIRONMENT_PREFIX + named.replace(".", _NESTED).upper()
    if error["type"] == "extra_forbidden":
        section = location[0] if len(location) > 1 else None
        valid = [key for parent, key in _names() if parent == section] or [f.name for f in fields(Settings)]
        return _unknown(where, name, valid, what="setting" if section else "section")
    told = error["msg"].removeprefix("Value error, ")
    return InvalidRequest(f"{where}: {printable(name)} = {error['input']!r}: {told}")


def _line_number(text: str, location: list[str]) -> str:
    """Return `:12`, the line of a section or of a key in it; nothing where it is written in another form."""
    lines = text.splitlines()
    start, end = section_in(lines, re.escape(location[0]))
    at = start
    if start is not None and len(location) > 1:
        at = line_in(lines, start, end, rf"\s*{re.escape(location[1])}\s*=")
    return "" if at is None else f":{at + 1}"


def _unknown(where: str, name: str, valid: list[str], *, what: str) -> InvalidRequest:
    return InvalidRequest(f"{where}: unknown {what} {printable(name)!r}", remedy=f"known names: {', '.join(valid)}")


def as_toml(annotation: Any, value: object) -> str:
    """Format a setting's value as it stands in store.toml."""
    if isinstance(value, bool):
        return str(value).lower()
    kind = kind_of(annotation)
    if kind is None or not isinstance(value, (int, float)):
        return json.dumps(units.OFF if value is None else value, ensure_ascii=False)
    written = _written(kind, value)
    return written if units.decimal(written) is not None else f'"{written}"'


def _written(kind: ValueKind, value: float) -> str:
    if kind.unit is Unit.SIZE:
        return units.format_size(int(value))
    return units.format_duration(value) if kind.unit is Unit.DURATION and value else str(value)


def values(loaded: LoadedSettings) -> Iterator[tuple[str, Any]]:
    """Yield names like `read.budget_bytes` and their values, in the order of the file."""
    for section, key in _names():
        yield f"{section}.{key}", getattr(getattr(loaded.settings, section), key)


def lines(loaded: LoadedSettings) -> str:
    """Format `name = value (origin)`, a line each, for people."""
    return "\n".join(f"{name} = {_shown(name, value)}  ({loaded.origins[name]})" for name, value in values(loaded))


def _shown(name: str, value: object) -> str:
    section, key = name.split(".")
    annotation = annotations_of(type(getattr(Settings(), section)))[key]
    return printable(as_toml(annotation, value))
