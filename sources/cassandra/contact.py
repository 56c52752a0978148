"""Which live nodes a source may ask, and as whom."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Contact:
    """`points` are `host:port`; without a `username` nobody logs in, without a `ca` no TLS."""

    points: tuple[str, ...] = ()
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
