"""Credentials that are replaced while a client uses them."""

from __future__ import annotations

import logging
import math
import threading

import botocore.config
import botocore.exceptions
import botocore.loaders
import botocore.session
from botocore.credentials import Credentials, EnvProvider, RefreshableCredentials

from tierfs.base.system.clock import Clock, SystemClock

_log = logging.getLogger(__name__)
# At INFO it tells with each look where credentials were found.
logging.getLogger("botocore.credentials").setLevel(logging.WARNING)

# Least time between two looks for other credentials: each reads files for some 5 ms (measured).
_LOOK_S = 1.0

# Requests signed before the credentials changed are refused no later (a guess): each may be repeated.
_ON_THE_WAY_S = 60.0

# What botocore calls credentials that it found in the environment.
_ENVIRONMENT = EnvProvider.METHOD


class Renewal:
    """Looks for other credentials after a refusal: in the profile's file, as tools that rotate keys replace it.

    Those that expire by themselves (roles, SSO) botocore renews, and those of the environment cannot change.
    """

    def __init__(self, profile: str | None, held: Credentials | None, clock: Clock | None = None) -> None:
        """Change `held` in place: the client and all that signs share it."""
        self._profile = profile
        fixed = isinstance(held, RefreshableCredentials) or (held is not None and held.method == _ENVIRONMENT)
        self._held = None if fixed else held
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._looked_s = self._changed_s = -math.inf

    def renew(self) -> bool:
        """Return whether the credentials changed just now, or a moment ago by another thread's look."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._held is not None and now_s - self._looked_s >= _LOOK_S:
                self._looked_s = now_s
                if self._replace(self._held):
                    self._changed_s = now_s
                    _log.info("credentials were refused; other credentials are used from now on")
            return now_s - self._changed_s < _ON_THE_WAY_S

    def _replace(self, held: Credentials) -> bool:
        try:
            newest = botocore.session.Session(profile=self._profile).get_credentials()
        except botocore.exceptions.BotoCoreError as exc:
            _log.warning("credentials were refused, and no other credentials exist: %s", exc)
            return False
        if newest is None or newest.get_frozen_credentials() == held.get_frozen_credentials():
            return False
        held.access_key, held.secret_key, held.token = newest.access_key, newest.secret_key, newest.token
        return True
