"""Sessions: the cookie that a browser has in place of the token. No state: it is signed with the token, and expires."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from http.cookies import SimpleCookie

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import Clock
from tierfs.base.words import units

# A working day, after which the token is asked for again (a guess).
SESSION_S = 12 * 3600

_MS_PER_S = 1000
_PURPOSE = b"tierfs dashboard"

# Browsers accept it only with Secure, from this host, for all paths (RFC 6265bis).
_HOST_PREFIX = "__Host-"


@dataclass(frozen=True, slots=True)
class LoginSessions:
    """The sessions of one listener."""

    token: str
    store_id: str
    clock: Clock
    secure: bool
    """Whether the listener speaks TLS."""

    @property
    def cookie(self) -> str:
        """The name of the cookie: cookies know no ports, and a host may have the dashboards of several stores."""
        return f"{_HOST_PREFIX if self.secure else ''}tierfs-{self.store_id[:8]}"

    def is_token(self, given: str) -> bool:
        """Return whether a text is the token, in constant time."""
        return hmac.compare_digest(given.strip().encode(errors="replace"), self.token.encode())

    def begun(self) -> str:
        """Return the `Set-Cookie` of a session that begins now."""
        expires_s = self._now_s() + SESSION_S
        return self._set(f"{expires_s}.{self._signature(expires_s)}", SESSION_S)

    def ended(self) -> str:
        """Return the `Set-Cookie` that makes a browser forget its session."""
        return self._set("", 0)

    def is_open(self, cookies: list[bytes]) -> bool:
        """Return whether the `Cookie` headers of a request have a session that is not over."""
        header = b"; ".join(cookies).decode("latin-1")
        values = [text.partition("=") for text in header.split(";")]
        return any(name.strip() == self.cookie and self._is_valid(value.strip()) for name, _, value in values)

    def _is_valid(self, value: str) -> bool:
        expires, _, signature = value.partition(".")
        expires_s = units.decimal(expires)
        if expires_s is None or expires != str(expires_s):
            return False
        right = hmac.compare_digest(signature.encode(), self._signature(expires_s).encode())
        return right and self._now_s() < expires_s <= self._now_s() + SESSION_S

    def _signature(self, expires_s: int) -> str:
        # The token signs and is not in the cookie: a cookie that leaks opens pages for hours, and no verb of the API.
        text = b"%b %b %d" % (_PURPOSE, self.store_id.encode(), expires_s)
        return urlsafe_b64encode(hmac.digest(self.token.encode(), text, "sha256")).decode("ascii").rstrip("=")

    def _set(self, value: str, age_s: int) -> str:
        made: SimpleCookie = SimpleCookie({self.cookie: value})
        morsel = made[self.cookie]
        morsel["path"], morsel["max-age"], morsel["samesite"] = "/", age_s, "Strict"
        morsel["httponly"], morsel["secure"] = True, self.secure
        return morsel.OutputString()

    def _now_s(self) -> int:
        return self.clock.now_ms() // _MS_PER_S
