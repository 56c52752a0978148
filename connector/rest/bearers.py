"""Verifies JWTs with trusted keys: their senders, and the roles that they claim."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jwt

KEYS_SECONDS: Final = 300
KEYS_ANSWER_SECONDS_MAX: Final = 5  # Other logins wait meanwhile.
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "EdDSA")
_CLAIMS: Final = ("exp", "iss", "aud", "sub")


class Bearers:
    """Verifies tokens."""

    def __init__(self, *, keys: str, issuer: str, audience: str, role_claim: str) -> None:
        """Trust *keys*, a file or an https URL that is read later, and require these claims."""
        self._keys = _Keys(keys)
        self._issuer = issuer
        self._audience = audience
        self._role_claim = role_claim

    def named(self, token: str) -> tuple[str, Sequence[str]]:
        """Return the name that *token* claims, and the names of roles.

        Blocks: keys may be read. Raises ValueError, which has the token's mistake.
        """
        try:
            claims = jwt.decode(
                token,
                self._keys.of(token),
                algorithms=list(_ALGORITHMS),
                audience=self._audience,
                issuer=self._issuer,
                options={"require": list(_CLAIMS)},
            )
        except (jwt.PyJWTError, OSError, ValueError, TypeError):  # Such as a key of another kind.
            message = "the token is not good"
            raise ValueError(message) from None
        roles = _names_in(claims.get(self._role_claim))
        if roles is None:
            message = "the token's roles are neither a string nor a list of strings"
            raise ValueError(message)
        return str(claims["sub"]), roles


class _Keys:
    """The public keys of a JWKS, from a file or an https URL; both are read again periodically."""

    def __init__(self, place: str) -> None:
        """Read nothing yet."""
        self._file = None if place.startswith("https://") else Path(place)
        self._client = None
        if self._file is None:  # An unknown key triggers a new request at most twice a minute.
            seconds = KEYS_ANSWER_SECONDS_MAX
            self._client = jwt.PyJWKClient(place, lifespan=KEYS_SECONDS, timeout=seconds)

    def of(self, token: str) -> Any:  # noqa: ANN401 (a key of cryptography)
        """Return the key that *token* names. Blocks; raises jwt.PyJWTError, OSError, ValueError."""
        if self._client is not None:
            return self._client.get_signing_key_from_jwt(token).key
        assert self._file is not None  # noqa: S101 (one of both)
        known = jwt.PyJWKSet.from_json(self._file.read_text(encoding="utf-8"))
        name = jwt.get_unverified_header(token).get("kid")
        found = [key.key for key in known.keys if key.key_id == name]
        if name is None or not found:
            raise jwt.InvalidTokenError("no key has the name that the token gives")
        return found[0]


def _names_in(claimed: object) -> Sequence[str] | None:
    """Return the names in a claim, or None if it is neither a string nor a list of strings."""
    if claimed is None or isinstance(claimed, str):
        return (claimed or "").split()
    if isinstance(claimed, list) and all(isinstance(name, str) for name in claimed):
        return claimed
    return None
