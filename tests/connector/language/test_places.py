"""A place is shown as line, column and caret, and shows no secret."""

import pytest

from headrace.connector.commands.options import every_section
from headrace.connector.control.entries import ConnectorOptions
from headrace.connector.language.places import EXCERPT_CHARS_MAX, PLAIN, place_of
from headrace.plugins import declared_options
from helpers.cost import is_linear


def test_line_and_column() -> None:
    """Lines are counted from 1, columns from 0."""
    place = place_of("one\ntwo three\nfour", 8, 13)

    assert "line 2:4" == str(place)
    assert "  two three\n      ^^^^^" == place.excerpt


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("日本 x", 3, "  日本 x\n       ^"),
        ("a\tb", 2, "  a b\n    ^"),
        ("a", 1, "  a\n   ^"),
        ("", 0, "  \n  ^"),
        ("a\x1bb", 2, "  a b\n    ^"),
    ],
    ids=["wide", "tab", "end", "empty", "escape"],
)
def test_caret(text: str, start: int, expected: str) -> None:
    """The caret stands below its character as a terminal shows it."""
    assert expected == place_of(text, start, start + 1).excerpt


def test_span_over_lines() -> None:
    """A part that continues over the line's end is marked up to there."""
    assert "  a 'b\n    ^^" == place_of("a 'b\nc'", 2, 7).excerpt


@pytest.mark.parametrize("start", [0, 60, 5_000, 9_999])
def test_long_line(start: int) -> None:
    """Of a long line only a window around the caret is shown."""
    shown, caret = place_of("x" * 10_000, start, start + 1).excerpt.split("\n")

    assert EXCERPT_CHARS_MAX + 2 >= len(shown)
    assert "x" == shown[len(caret) - 1]
    assert (start > 0) == ("…" in shown[: len(caret)])


@pytest.mark.parametrize(
    "text",
    [
        "AND sasl.password = 'canary' x",
        "AND sasl.password = 'it''s canary' x",
        "AND sasl.password =\n 'canary' x",
        "AND \"ssl.key.pem\" = 'canary' x",
        "'kafka://canary@h' x",
        "'kafka://u:canary@h' x",
        "'kafka://h?sasl.password=canary&b=c' x",
        "AND sasl.password = canary x",
        "AND SASL_TOKEN='canary x",
        'AND sasl.password = "a canary" x',
        "AND sasl.password = a canary AND x",
        "AND sasl.password = '" + "y" * 200 + "canary' x",
        "AND ssl.key.pem = '" + "y" * 2_000 + "canary' x",
        "AND basic.auth.user.info = 'u:canary' x",
        "AND basic.auth.user.info = u:a canary AND x",
        "AND tokn = 'a=''canary' x",
        "'kafka://h?basic.auth.user.info=it''s:canary&b=c' x",
        "kafka://h?tokn=canary x",
        "AND secret_path = 'canary' x",
        "AND token.path='canary' x",
        "AND \"key.topic\" = 'canary' x",
        "AND path = 'https://canary@h/a' x",
        "AND path = 'a' AND tokn = 'canary' x",
        "AND path = a&tokn=canary x",
    ],
)
def test_secrets(text: str) -> None:
    """What by its name or place is a secret is covered, and the caret stays where it was."""
    start = len(text) - 1
    place = place_of(text, start, start + 1)
    line, caret = place.excerpt.split("\n")

    assert "canary" not in line
    assert line[len(caret) - 1] in (text[-1], "*")


@pytest.mark.parametrize(
    "text",
    [
        "AND sasl.password = '${env:NAME}' x",
        "AND a = 1\nDROP x",
        "SET POSITION = '2026-01-01' x",
        "CREATE DATA_SINK k WITH 'kafka://host:9092' x",
        "WITH k AND plugin='files' AND path='in/*.jsonl' x",
        "WITH k AND PLUGIN = 'files' AND job =nightly x",
        "'kafka://h:9092?topic=orders&name=a' x",
        "SELECT op FROM h WHERE CDC_TIME() >= NOW() - '1h' AND CDC_TIME() <= '2026-01-01' x",
    ],
)
def test_not_covered(text: str) -> None:
    """A reference, a position, a host, bounds of times and other lines are shown."""
    assert text.rpartition("\n")[2] in place_of(text, len(text) - 1, len(text)).excerpt


def test_none_of_what_is_shown_is_a_secret() -> None:
    """No plugin declares a secret of such a name; the table's own options are among them."""
    secrets = {
        key
        for _, section in every_section()
        for key, (_, found) in declared_options(section.config_class).items()
        if found.secret
    }
    assert secrets
    assert not secrets.intersection(PLAIN)
    assert {"job", "cluster", "start"} <= set(declared_options(ConnectorOptions)) & set(PLAIN)


def test_long_texts_are_covered_in_linear_time() -> None:
    """Covering reads a text once, with any content."""

    def cover(size: int) -> None:
        for piece in (" ", "=", "= ", "= a  ", "'"):
            for text in (piece * size, f"={piece * size}"):
                place_of(f"{text}x", len(text), len(text) + 1)

    assert is_linear(cover, 2_000, times=10)
