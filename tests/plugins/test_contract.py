"""What a sink takes from a URI without a method of its own."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from headrace.plugins import ConfigError, Sink, Writer, option


@dataclass(frozen=True)
class PathConfig:
    """The options of a sink with a path."""

    path: str = option("The path.")


@dataclass(frozen=True)
class UrlConfig:
    """The options of a sink without one."""

    url: str = option("The URL.")


class UrlSink(Sink):
    """A sink that is never opened."""

    schemes = ("post",)
    config_class: ClassVar[type] = UrlConfig

    def open(self) -> Writer:
        """Fail."""
        raise AssertionError


class PathSink(UrlSink):
    """The same with a path."""

    config_class = PathConfig


def test_host_and_path_are_the_path() -> None:
    """A sink with an option `path` takes both as that, and nothing of an empty URI."""
    assert {"path": "host/a b"} == PathSink.config_of_uri("host", "/a b")
    assert {"path": "/a"} == PathSink.config_of_uri("", "/a")
    assert {} == PathSink.config_of_uri("", "")


def test_without_a_path_the_uri_is_empty() -> None:
    """A sink without that option takes an empty URI, and says how to give options otherwise."""
    assert {} == UrlSink.config_of_uri("", "")
    with pytest.raises(ConfigError, match=r"takes nothing from host/in in its URI") as caught:
        UrlSink.config_of_uri("host", "/in")

    assert "write post:// and give each option with AND" == caught.value.hint
