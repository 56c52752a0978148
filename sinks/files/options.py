"""Options of the file sink, from a job's file or a URI."""

from dataclasses import dataclass

from headrace import plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkConfig(plugins.SinkOptions):
    """Options of the file sink."""

    path: str = plugins.option("The file to append to; it is made if it is not there.", writes=True)

    def __post_init__(self) -> None:
        """Refuse what names no file, and what every sink refuses."""
        plugins.SinkOptions.__post_init__(self)
        if not self.path.strip("/") or self.path.endswith("/"):
            raise plugins.ConfigError([plugins.Problem("path", f"{self.path!r} names no file")])


def options_of_uri(host: str, path: str) -> dict[str, str]:
    """Return what `file://` followed by *host* and *path* says. Raises ConfigError."""
    if host and path:
        hint = f"write file:///{host}{path}, or file:// and AND path = '{host}{path}'"
        raise plugins.ConfigError([plugins.Problem("uri", f"{host!r} is no folder", hint)])
    return {"path": host or path} if host or path else {}
