"""The text of `STORE/store.toml`, of which one line is changed, so that its comments stay."""

from __future__ import annotations

import json
import re
import tomllib

from tierfs.base.options.config import Settings

_NUMBER_OR_SWITCH = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?|true|false")


def unquoted(value: str) -> str:
    """Return a value as it is typed, also of one that is written in quotes as `config` and store.toml have it."""
    try:
        parsed = tomllib.loads(f"value = {value}") if value[:1] in ('"', "'") else {}
    except tomllib.TOMLDecodeError:
        return value
    return parsed["value"] if isinstance(parsed.get("value"), str) and len(parsed) == 1 else value


def with_value(text: str, name: str, value: str) -> str:
    """Return the text with the setting `name`, like `read.streams`, in the line that sets it or shows its default."""
    section, key = name.split(".")
    lines = text.splitlines()
    is_text = isinstance(getattr(getattr(Settings(), section), key), str) or not _NUMBER_OR_SWITCH.fullmatch(value)
    written = f"{key} = {json.dumps(value, ensure_ascii=False) if is_text else value}"
    start, end = section_in(lines, section)
    if start is None:
        return "\n".join([*lines, *([""] if lines else []), f"[{section}]", written]) + "\n"
    if lines[start].startswith("#"):  # a section that somebody commented out
        lines[start] = f"[{section}]"
    at = line_in(lines, start, end, rf"\s*{key}\s*=")
    at = at if at is not None else line_in(lines, start, end, rf"#\s*{key}\s*=")
    if at is None:
        lines.insert(start + 1, written)
    else:
        lines[at] = written
    return "\n".join(lines) + "\n"


def without(text: str, name: str, default: str) -> str:
    """Return the text without a setting; its line becomes a comment that shows the default."""
    section, key = name.split(".")
    lines = text.splitlines()
    start, end = section_in(lines, section)
    at = None if start is None else line_in(lines, start, end, rf"\s*{key}\s*=")
    if at is not None:
        lines[at] = f"# {key} = {default}"
    return "\n".join(lines) + "\n"


def section_in(lines: list[str], section: str) -> tuple[int | None, int]:
    """Return the line of a section's header, None without one, and the line after its last."""
    header = re.compile(rf"(# )?\[{section}\]\s*(#.*)?")
    start = next((at for at, line in enumerate(lines) if header.fullmatch(line.strip())), None)
    if start is None:
        return None, len(lines)
    following = (at for at in range(start + 1, len(lines)) if re.match(r"(# )?\[", lines[at]))
    return start, next(following, len(lines))


def line_in(lines: list[str], start: int, end: int, pattern: str) -> int | None:
    """Return the first line between `start` and `end` that begins with `pattern`; None without one."""
    return next((at for at in range(start + 1, end) if re.match(pattern, lines[at])), None)
