"""A sink URI is parsed strictly: what two programs could read in two ways is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.control.errors import BadUriError
from headrace.connector.control.plugins.sink_uri import URI_CHARS_MAX, SinkUri, parse_sink_uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka://h1:1,h2:2?topic=x", SinkUri("kafka", "h1:1,h2:2", "", (("topic", "x"),))),
        ("KAFKA://[::1]:9092", SinkUri("kafka", "[::1]:9092", "", ())),
        ("files:///out/a%20b.jsonl", SinkUri("files", "", "/out/a b.jsonl", ())),
        ("files://out/a", SinkUri("files", "out", "/a", ())),
        ("a://h?", SinkUri("a", "h", "", ())),
        ("a://h?x=1+2&y=%26%3D%C3%A9&z=", SinkUri("a", "h", "", (("x", "1+2"), ("y", "&=é"),
                                                                 ("z", "")))),
        ("a://h?url=http://x/?y=1", SinkUri("a", "h", "", (("url", "http://x/?y=1"),))),
        ("a://h?p=${env:P}", SinkUri("a", "h", "", (("p", "${env:P}"),))),
    ],
)  # fmt: skip
def test_parts(text: str, expected: SinkUri) -> None:
    """Escapes in path and query are resolved; the host stays as it is written."""
    assert expected == parse_sink_uri(text)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "not a URI", "kafka://host:9092"),
        ("kafka", "not a URI", ""),
        ("kafka:h:9092", "not a URI", ""),
        ("kafka:/h", "not a URI", ""),
        ("1a://h", "not a URI", ""),
        ("kafka://u:canary@h", "holds a user", "as a reference"),
        ("kafka://a@b:9092@c", "holds a user", ""),
        ("kafka://h%2fx", "host has a percent escape", ""),
        ("kafka://h#x", "fragment", "%23"),
        ("kafka://h\\x", "U+005C at character 9", "percent escape"),
        ("kafka://h x", "U+0020 at character 9", ""),
        ("kafka://h\tx", "U+0009", ""),
        ("kafka://h\x00", "U+0000", ""),
        ("kafka://h?a=%1b", "U+001B as a percent escape", ""),
        ("kafka://h?a=%zz", "'%zz' is not a percent escape", "%25"),
        ("kafka://h?a=%2", "'%2' is not a percent escape", ""),
        ("kafka://h?a=%ff", "not UTF-8", ""),
        ("kafka://h?a", "'a' has no value", "?key=value"),
        ("kafka://h?=a", "an option has no name", ""),
        ("kafka://h?a=1&", "an option has no name", ""),
        ("kafka://h?a=1&%61=2", "gives a twice", ""),
    ],
)
def test_refused(text: str, message: str, hint: str) -> None:
    """The error names the wrong part, without repeating what may be a secret."""
    with pytest.raises(BadUriError) as caught:
        parse_sink_uri(text)

    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "canary" not in str(caught.value)


def test_length() -> None:
    """A URI of the maximal length is accepted; one more character is refused."""
    fits = "a://" + "x" * (URI_CHARS_MAX - 4)

    assert "a" == parse_sink_uri(fits).scheme
    with pytest.raises(BadUriError, match="more than 8192 characters"):
        parse_sink_uri(f"{fits}x")


@given(st.text() | st.text("ab:/?#[]@!$&%=25c ").map("a://".__add__))
def test_any_text(text: str) -> None:
    """Any text is a URI or gives a named error."""
    try:
        parse_sink_uri(text)
    except BadUriError as error:
        key = error.problems[0].key
    else:
        key = "uri"

    assert "uri" == key
