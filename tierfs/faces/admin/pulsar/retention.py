"""Retention of Pulsar (RetentionPolicies) as the policies retention_age and retention_bytes.

Pulsar keeps acknowledged messages up to both limits. A store knows no acknowledgement: its limits are of all bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tierfs.base.options import policy
from tierfs.base.options.policy import OFF, Value
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB

AGE, SIZE = "retention_age", "retention_bytes"

_MINUTES, _MEBIBYTES = "retentionTimeInMinutes", "retentionSizeInMB"
_S_PER_MINUTE = 60

# The unit of each field in that of its policy.
_UNIT = {_MINUTES: _S_PER_MINUTE, _MEBIBYTES: MIB}
_POLICY = {_MINUTES: AGE, _MEBIBYTES: SIZE}


def wanted(given: Any) -> dict[str, str]:
    """Return the policies, in their stored form, that RetentionPolicies set; a negative limit is off.

    Raises InvalidRequest for another body, and for a limit of 0: Pulsar deletes each message once it is acknowledged,
    or refuses it next to another limit (AdminResource.checkQuotas).
    """
    if not isinstance(given, dict) or not given.keys() <= _POLICY.keys():
        raise InvalidRequest(f'the body is not like {{"{_MINUTES}": 1440, "{_MEBIBYTES}": -1}}')
    limits = {name: given.get(name, 0) for name in _POLICY}
    for name, limit in limits.items():
        if not isinstance(limit, int) or isinstance(limit, bool):
            raise InvalidRequest(f"{name} is not a whole number")
        if not limit:
            raise InvalidRequest(
                f"{name} is 0: a store has no subscriptions, so no message is ever acknowledged and deleted",
                remedy="use -1 for no limit, or a limit above 0",
            )
    return {
        _POLICY[name]: OFF if limit < 0 else policy.parse(_POLICY[name], str(limit * _UNIT[name]))
        for name, limit in limits.items()
    }


def fields(values: Mapping[str, Value]) -> dict[str, int] | None:
    """Return policies by key as RetentionPolicies; None where neither of the two is among them.

    Limits are rounded up to whole minutes and MiB: a client must not read less than is kept.
    """
    if not {AGE, SIZE} & values.keys():
        return None
    return {name: _limit(values.get(_POLICY[name]), unit) for name, unit in _UNIT.items()}


def _limit(value: Value, unit: int) -> int:
    if value is None:
        return -1
    assert isinstance(value, int)
    return -(-value // unit)
