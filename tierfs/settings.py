"""Reading `STORE/store.toml` and `TIERFS_*` into the settings tree of config.py, and the template init writes.

Unknown keys are refused, so that a misspelt one never passes for a default. Sizes read like `64MiB`,
times like `4h`. pydantic does the checking and is imported only when there is something to check.
"""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from tierfs import config, units
from tierfs.config import Settings
from tierfs.errors import InvalidRequest, NotFound, PermissionDenied, Unavailable
from tierfs.names import printable

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

ENVIRONMENT_PREFIX = "TIERFS_"
_NESTED = "__"
"""Between section and key: TIERFS_READ__BUDGET_BYTES. Variables without it (TIERFS_STORE) are no settings."""

_MAY_BE_ZERO = frozenset(
    {
        "cache_bytes",
        "consolidate_chunks",
        "free_space_floor_bytes",
        "grace_s",
        "high_watermark_bytes",
        "pack_below_bytes",
        "retry_base_s",
        "retry_max_s",
        "sealed_timeout_s",
    }
)
"""Every other number counts something that must exist."""

_LEAST = {"ledger_block_bytes": 5 * 1024 * 1024}
"""S3 takes no smaller part of an upload, but for the last one."""

_CHOICES: Mapping[str, Any] = {"cold.addressing": Literal["auto", "path", "virtual"]}
"""Settings whose type alone does not tell what is allowed."""

Tree = dict[str, dict[str, Any]]
"""Raw values by section and key."""


class Origin(StrEnum):
    """Where a value comes from."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and where each came from under its name, like `read.budget_bytes`."""

    settings: Settings
    origins: Mapping[str, Origin]


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """The settings of a store. Raises InvalidRequest naming file and key, NotFound or PermissionDenied."""
    return load_with_origins(path, environ).settings


def load_with_origins(path: Path, environ: Mapping[str, str]) -> LoadedSettings:
    """The settings, the environment's above the file's above the defaults; raises what `load` raises."""
    from_file = _read(path)
    from_environment = _overrides(environ)
    origins = {f"{section}.{key}": Origin.DEFAULT for section, key in _names()}
    origins |= {f"{section}.{key}": Origin.FILE for section, keys in from_file.items() for key in keys}
    origins |= {f"{section}.{key}": Origin.ENVIRONMENT for section, keys in from_environment.items() for key in keys}
    if not any(from_file.values()) and not from_environment:
        return LoadedSettings(Settings(), origins)
    merged = {
        section: {**from_file.get(section, {}), **from_environment.get(section, {})}
        for section in [*from_file, *(section for section in from_environment if section not in from_file)]
    }
    return LoadedSettings(_validated(merged, path, origins), origins)


def default_text() -> str:
    """A store.toml that lists every setting, commented out, with its default and what it does."""
    lines = [
        "# Settings of this store; the values shown are the defaults. Sizes read like 64MiB, times like 4h.",
        "# To change one, uncomment it and its section's line. The environment overrides this file:",
        "# TIERFS_READ__BUDGET_BYTES=512MiB",
    ]
    documents = _documents()
    for section in fields(Settings):
        values = getattr(Settings(), section.name)
        lines += ["", f"# [{section.name}]"]
        waiting: list[str] = []
        for key in (field.name for field in fields(values)):
            text = documents.get((type(values).__name__, key))
            if waiting and not _of_one_kind(waiting[-1], key):
                lines += waiting
                waiting = []
            waiting.append(f"# {key} = {as_toml(key, getattr(values, key))}")
            if text is not None:  # one text may describe the keys before it too
                lines += [f"## {' '.join(text.split())}", *waiting]
                waiting = []
        lines += waiting
    return "\n".join(lines) + "\n"


def _read(path: Path) -> Tree:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise NotFound(f"{path} does not exist") from exc
    except PermissionError as exc:
        raise PermissionDenied(f"{path} cannot be read") from exc
    except OSError as exc:
        raise Unavailable(f"{path} cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidRequest(f"{path} is not valid TOML: {exc}") from exc
    for section, keys in tree.items():
        if not isinstance(keys, dict):
            sections = ", ".join(f"[{field.name}]" for field in fields(Settings))
            raise InvalidRequest(
                f"{path}: {printable(section)} stands outside of a section",
                remedy=f"put its section's line above it, one of: {sections}",
            )
    return tree


def _overrides(environ: Mapping[str, str]) -> Tree:
    found: Tree = {}
    for name in sorted(environ):
        section, nested, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition(_NESTED)
        if name.startswith(ENVIRONMENT_PREFIX) and nested:
            found.setdefault(section, {})[key] = environ[name]
    return found


def _names() -> Iterator[tuple[str, str]]:
    """Section and key of every setting."""
    defaults = Settings()
    for section in fields(Settings):
        for key in fields(getattr(defaults, section.name)):
            yield section.name, key.name


def _validated(tree: Tree, path: Path, origins: Mapping[str, Origin]) -> Settings:
    from pydantic import ValidationError

    try:
        checked = _model(Settings, "").model_validate(tree)
    except ValidationError as exc:
        raise _refused(exc.errors()[0], path, origins) from exc
    sections = {}
    for section, keys in checked:
        default = getattr(Settings(), section)
        sections[section] = default if keys is None else type(default)(**dict(keys))
    return Settings(**sections)


def _model(section: type, prefix: str) -> type[BaseModel]:
    """A pydantic model with the fields and defaults of a settings class, strict about names and numbers."""
    from pydantic import ConfigDict, create_model

    defaults = section()
    hints = get_type_hints(section)
    members: dict[str, Any] = {}
    for field in fields(section):
        default = getattr(defaults, field.name)
        if hasattr(default, "__dataclass_fields__"):
            members[field.name] = (_model(type(default), f"{field.name}.") | None, None)
        else:
            members[field.name] = (_checked(prefix + field.name, hints[field.name]), default)
    created: type[BaseModel] = create_model(
        section.__name__, __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **members
    )
    return created


def _checked(name: str, kind: Any) -> Any:
    """The type of a setting with what its name says about it: unit and smallest value."""
    from pydantic import BeforeValidator, Field

    key = name.rpartition(".")[2]
    if key.endswith("_directory"):
        return Annotated[kind, BeforeValidator(_directory)]
    if kind not in (int, float):
        return _CHOICES.get(name, kind)
    bound = Field(ge=_LEAST.get(key, 0)) if key in _MAY_BE_ZERO or key in _LEAST else Field(gt=0)
    if key.endswith("_bytes"):
        return Annotated[kind, BeforeValidator(units.parse_size), bound]
    if key.endswith("_s"):
        return Annotated[kind, BeforeValidator(units.parse_duration), bound]
    return Annotated[kind, bound]


def _directory(value: object) -> object:
    """A path as the system takes it: nothing in it is expanded, so what looks as if it would be is refused."""
    if isinstance(value, str) and ("\0" in value or value.startswith("~")):
        raise ValueError(f"{value!r} is no directory: write an absolute path, or one relative to the store's directory")
    return value


def _refused(error: ErrorDetails, path: Path, origins: Mapping[str, Origin]) -> InvalidRequest:
    """One error in the user's words: where it stands, which key, and what is allowed."""
    location = [str(part) for part in error["loc"]]
    name = ".".join(location)
    where = str(path)
    named = next((full for full in origins if full == name or full.startswith(f"{name}.")), name)
    if origins.get(named) is Origin.ENVIRONMENT:
        where = "environment variable " + ENVIRONMENT_PREFIX + named.replace(".", _NESTED).upper()
    if error["type"] == "extra_forbidden":
        section = location[0] if len(location) > 1 else None
        known = [key for parent, key in _names() if parent == section] or [f.name for f in fields(Settings)]
        return _unknown(where, name, known, what="setting" if section else "section")
    allowed = error["msg"].removeprefix("Value error, ")
    return InvalidRequest(f"{where}: {printable(name)} = {error['input']!r}: {allowed[:1].lower()}{allowed[1:]}")


def _unknown(where: str, name: str, known: list[str], *, what: str) -> InvalidRequest:
    return InvalidRequest(f"{where}: unknown {what} {printable(name)!r}", remedy=f"known are: {', '.join(known)}")


def _documents() -> dict[tuple[str, str], str]:
    """The text below each field in config.py, by class and field name; empty where no source is installed."""
    try:
        module = ast.parse(inspect.getsource(config))
    except OSError:
        return {}
    found: dict[tuple[str, str], str] = {}
    for section in (node for node in module.body if isinstance(node, ast.ClassDef)):
        for field, text in zip(section.body, section.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[section.name, ast.unparse(field.target)] = str(text.value.value)
    return found


def _of_one_kind(line: str, key: str) -> bool:
    """Whether two keys begin with the same word, like retry_base_s and retry_max_s."""
    return line.removeprefix("# ").partition("_")[0] == key.partition("_")[0]


def as_toml(key: str, value: object) -> str:
    """A setting's value as it stands in store.toml; `key` tells sizes from other numbers."""
    if value is None:
        return '"..."  # not set'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and key.endswith("_bytes"):
        whole, rest = divmod(value, 1024 * 1024)
        return str(value) if rest else f'"{whole}MiB"'
    return str(value) if isinstance(value, (int, float)) else f'"{value}"'
