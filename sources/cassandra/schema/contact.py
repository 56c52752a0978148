"""The live nodes that a source may ask, and its role there."""

from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True)
class Contact:
    """`points` are `host:port`; without a `username` there is no login, without a `ca` no TLS."""

    points: tuple[str, ...] = ()
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None


class NodeSettings(msgspec.Struct, frozen=True):
    """What a node is set to do, as far as it tells."""

    repair_is_logged: bool = False
    """Whether it writes what repair streams to it into its commit log."""
    cdc_bytes_max: int | None = None
    """How large its `cdc_raw` may become."""
