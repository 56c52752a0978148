"""The live nodes that a source may query, and its role there."""

from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True)
class Contact:
    """`points` are `host:port`; without `username` there is no login, without `ca` no TLS."""

    points: tuple[str, ...] = ()
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None


class NodeSettings(msgspec.Struct, frozen=True):
    """The settings of a node, as far as it reports them."""

    repair_is_logged: bool = False
    """Whether the node writes rows that repair streams to it into its commit log."""
    cdc_bytes_max: int | None = None
    """How large its `cdc_raw` may become."""
