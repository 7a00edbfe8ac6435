"""Precedence: the value of a policy that holds, and the place that sets it.

The strongest place that sets a policy wins: the call, the mount option, a setting of this host that overrides policies,
the segment, its directories from the nearest up, a setting of this host that policies override, the built-in value.
Every face asks here: reads, mounts, commands, scans, the planner of the background work, retention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.options import policy
from tierfs.base.options.config import Settings
from tierfs.base.options.policy import KEYS, Policy, Value
from tierfs.base.words.names import printable
from tierfs.base.words.types import Compression, ReadPriority

V_co = TypeVar("V_co", bound=Value, covariant=True)

# Settings of a host that policies override.
_PRIORITY, _NEEDS_OFFLOAD = "read.priority", "background.retention_needs_offload"
BELOW_POLICIES = (_PRIORITY, _NEEDS_OFFLOAD)

_DEFAULTS = Policy()


class SetBy(StrEnum):
    """The kind of place that sets a value, the strongest first; a host's setting may stand above or below policies."""

    CALL = "call"
    MOUNT_OPTION = "mount option"
    STORE = "store"
    SETTING = "setting"
    SEGMENT = "segment"
    DIRECTORY = "directory"
    BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True)
class PolicyOrigin:
    """The place that sets a value."""

    set_by: SetBy
    name: str | None = None
    """Full name of the segment or directory, "" for the root; name of the setting; what it is about the store."""

    def __str__(self) -> str:
        return self.set_by.value if self.name is None else f"{self.set_by.value} {printable(self.name) or '/'}"


@dataclass(frozen=True, slots=True)
class Level:
    """A place and the policies that it sets, in their stored form."""

    origin: PolicyOrigin
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Effective(Generic[V_co]):
    """A value that holds, and the place that sets it."""

    value: V_co
    origin: PolicyOrigin


@dataclass(frozen=True, slots=True)
class Host:
    """The settings of a host that set policies, and the one that limits what all of them together make cold."""

    above: tuple[Level, ...] = ()
    """Stronger than policies."""
    below: tuple[Level, ...] = ()
    """Weaker than policies."""
    cold_quota_bytes: int = 0
    """Bytes that the store may have in its cold tier; 0 for no limit."""

    @classmethod
    def of(cls, settings: Settings) -> Host:
        """Return those that a store's settings contain."""
        read, background = settings.read, settings.background
        below = [_setting(_PRIORITY, "read_priority", read.priority)]
        if not background.retention_needs_offload:
            below.append(_setting(_NEEDS_OFFLOAD, "retention_needs_offload", False))
        return cls(
            above=tuple(filter(None, [_setting("read.override_priority", "read_priority", read.override_priority)])),
            below=tuple(filter(None, below)),
            cold_quota_bytes=settings.cold.quota_bytes,
        )


NO_HOST = Host()


def _setting(name: str, key: str, value: ReadPriority | bool | None) -> Level | None:
    return None if value is None else Level(PolicyOrigin(SetBy.SETTING, name), {key: policy.format(key, value)})


# Nothing can be offloaded, so that no deletion waits for it.
NO_COLD_TIER = Level(PolicyOrigin(SetBy.STORE, "no cold tier"), {"retention_needs_offload": "no"})

_BUILT_IN = PolicyOrigin(SetBy.BUILT_IN)


def effective(
    key: str, levels: tuple[Level, ...], *, call: Value = None, mount_option: Value = None
) -> Effective[Value]:
    """Return the value of a policy that holds, and its origin; `levels` are the host's and the policies' places, the
    strongest first."""
    if call is not None:
        return Effective(call, PolicyOrigin(SetBy.CALL))
    if mount_option is not None:
        return Effective(mount_option, PolicyOrigin(SetBy.MOUNT_OPTION))
    for level in levels:
        text = level.values.get(key)
        if text is not None:
            return Effective(policy.from_stored(key, text), level.origin)
    return Effective(policy.value_of(_DEFAULTS, key), _BUILT_IN)


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies that hold for one segment or directory."""

    levels: tuple[Level, ...] = ()
    """The places that set policies, the strongest first."""
    values: Policy = field(init=False)
    """Their values."""

    def __post_init__(self) -> None:
        values: dict[str, Value] = {}
        for level in self.levels:
            for key, text in level.values.items():
                policy.check_key(key)
                name = policy.attribute(key)
                if name not in values:
                    values[name] = policy.from_stored(key, text)
        object.__setattr__(self, "values", Policy(**values))  # type: ignore[arg-type]

    @classmethod
    def of(cls, nearest_first: tuple[Level, ...], host: Host) -> Policies:
        """Return those of a segment or directory; `nearest_first` are its own level and those of the directories above
        it."""
        return cls((*host.above, *nearest_first, *host.below))

    @property
    def name(self) -> str:
        """The full name of the segment or directory."""
        own = (level.origin.name for level in self.levels if level.origin.set_by in (SetBy.SEGMENT, SetBy.DIRECTORY))
        return next(own, None) or ""

    @property
    def has_cold_tier(self) -> bool:
        """Whether bytes of the store can be offloaded at all."""
        return NO_COLD_TIER not in self.levels

    def effective(self, key: str) -> Effective[Value]:
        """Return the value of one policy and its origin."""
        return effective(key, self.levels)

    def read_priority(
        self, call: ReadPriority | None = None, mount_option: ReadPriority | None = None
    ) -> Effective[ReadPriority]:
        """Return the priority of a read, and its origin."""
        priority = effective("read_priority", self.levels, call=call, mount_option=mount_option)
        assert isinstance(priority.value, ReadPriority)
        return Effective(priority.value, priority.origin)

    def compression(self) -> Effective[Compression]:
        """Return whether new cold objects are compressed, and the origin of that."""
        chosen = self.effective("compression")
        assert isinstance(chosen.value, Compression)
        return Effective(chosen.value, chosen.origin)

    def all(self) -> Iterator[tuple[str, Effective[Value]]]:
        """Yield every policy with its value and origin, in the order of KEYS."""
        for key in KEYS:
            yield key, self.effective(key)
