"""Options are declared once; parsing reports every mistake at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins import ConfigError, Problem, declared_options, option, parse_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """One option of every kind."""

    path: str = option("Where to write.")
    acks: str = option("Who confirms.", default="all", choices=("all", "leader", "none"))
    retries: int = option("How often.", name="retries.max", default=3, minimum=0, maximum=10)
    ratio: float = option("How much.", default=0.5, maximum=1)
    follow: bool = option("Whether to go on.", default=True)
    tables: tuple[str, ...] = option("Which tables.", default=())
    limit: int | None = option("At most.", default=None)
    nodes: Mapping[str, str] = option("Where each node's log is.", default={"n": "m"})
    pin: int = option("Secret number.", default=0, secret=True)
    disposal: object = option("What becomes of it.", default="keep")
    passed_on: Mapping[str, str] = option("For the client.", keys_allowed=r"client\..+")

    def __post_init__(self) -> None:
        """Refuse the one pair that makes no sense."""
        if self.follow and self.limit == 0:
            raise ConfigError([Problem("limit", "is 0 while follow is on", "set follow: false")])


GOOD: dict[str, tuple[dict[str, Any], str, object]] = {
    "text": ({}, "path", "out"),
    "number as text": ({"path": 7}, "path", "7"),
    "choice": ({"acks": "leader"}, "acks", "leader"),
    "whole number from text": ({"retries.max": "10"}, "retries", 10),
    "lower bound": ({"retries.max": 0}, "retries", 0),
    "number": ({"ratio": "1"}, "ratio", 1.0),
    "true": ({"follow": "Yes"}, "follow", True),
    "false": ({"follow": False}, "follow", False),
    "list": ({"tables": ["a.b", "c.d"]}, "tables", ("a.b", "c.d")),
    "list from text": ({"tables": "a.b, c.d,"}, "tables", ("a.b", "c.d")),
    "optional": ({"limit": "5"}, "limit", 5),
    "optional from null": ({"limit": None}, "limit", None),
    "optional from nothing": ({"limit": ""}, "limit", None),
    "mapping": ({"nodes": {1: "a"}}, "nodes", {"1": "a"}),
    "anything": ({"disposal": {"archive": "a"}}, "disposal", {"archive": "a"}),
    "default mapping": ({}, "nodes", {"n": "m"}),
    "allowed keys": ({"client.id": True}, "passed_on", {"client.id": "true"}),
    "no allowed keys": ({}, "passed_on", {}),
}


@pytest.mark.parametrize(("given", "field", "expected"), GOOD.values(), ids=GOOD)
def test_converts(given: dict[str, Any], field: str, expected: object) -> None:
    """A value arrives in its field's type, whether a program or a text gave it."""
    config = parse_config(Everything, {"path": "out", **given})

    assert expected == getattr(config, field)


BAD: dict[str, tuple[dict[str, Any], Problem]] = {
    "no number": (
        {"retries.max": "x"},
        Problem("retries.max", "expected a whole number, found 'x'"),
    ),
    "too small": ({"retries.max": -1}, Problem("retries.max", "must be at least 0, found -1")),
    "too large": ({"retries.max": 11}, Problem("retries.max", "must be at most 10, found 11")),
    "not finite": ({"ratio": "nan"}, Problem("ratio", "expected a number, found 'nan'")),
    "no boolean": ({"follow": "2"}, Problem("follow", "expected true or false, found '2'")),
    "null for a text": ({"path": None}, Problem("path", "expected a text, found None")),
    "list for a text": ({"path": ["a"]}, Problem("path", "expected a text, found a list")),
    "no list": ({"tables": 3}, Problem("tables", "expected a list, found 3")),
    "no mapping": ({"nodes": "a"}, Problem("nodes", "expected a mapping, found 'a'")),
    "nested in a flat key": (
        {"client.id": {"a": 1}},
        Problem("client.id", "expected a text, found a mapping"),
    ),
    "choice with a slip": (
        {"acks": "leadr"},
        Problem("acks", "expected one of all, leader, none, found 'leadr'", "did you mean leader?"),
    ),
    "choice far off": (
        {"acks": "0"},
        Problem("acks", "expected one of all, leader, none, found '0'"),
    ),
    "unknown with a slip": (
        {"retries_max": 1},
        Problem("retries_max", "is not an option", "did you mean retries.max?"),
    ),
    "unknown far off": (
        {"zzz": 1},
        Problem(
            "zzz",
            "is not an option",
            "options: path, acks, retries.max, ratio, follow, tables, limit, nodes, pin, disposal",
        ),
    ),
    "field of allowed keys": (
        {"passed_on": {"client.id": "x"}},
        Problem(
            "passed_on",
            "is not an option",
            "options: path, acks, retries.max, ratio, follow, tables, limit, nodes, pin, disposal",
        ),
    ),
    "fields that disagree": (
        {"limit": 0},
        Problem("limit", "is 0 while follow is on", "set follow: false"),
    ),
    "long": ({"ratio": "x" * 99}, Problem("ratio", f"expected a number, found '{'x' * 79}")),
    "secret": ({"pin": "x12"}, Problem("pin", "expected a whole number, found a secret")),
}


@pytest.mark.parametrize(("given", "expected"), BAD.values(), ids=BAD)
def test_refuses(given: dict[str, Any], expected: Problem) -> None:
    """A mistake is reported with its key, what was found, what was expected and what to do."""
    with pytest.raises(ConfigError) as caught:
        parse_config(Everything, {"path": "out", **given}, place="job.yaml")

    assert (expected,) == caught.value.problems
    assert "job.yaml" == caught.value.place


@dataclass(frozen=True, kw_only=True)
class Wide:
    """More options than a hint lists, and keys by a pattern of which some are known."""

    passed_on: Mapping[str, str] = option(
        "Passed on.", keys_allowed=r"client\.[a-z]+", keys_known=("client.rack",)
    )
    a1: str = option("One.", default="")
    a2: str = option("One.", default="")
    a3: str = option("One.", default="")
    a4: str = option("One.", default="")
    a5: str = option("One.", default="")
    a6: str = option("One.", default="")
    a7: str = option("One.", default="")
    a8: str = option("One.", default="")
    a9: str = option("One.", default="")
    b1: str = option("One.", default="")
    b2: str = option("One.", default="")
    b3: str = option("One.", default="")
    b4: str = option("One.", default="")


@pytest.mark.parametrize(
    ("key", "name", "hint"),
    [
        ("zzz", "", "`headrace options` shows what has options"),
        ("zzz", "w", "`headrace options w` lists all 13 options"),
        ("clint.rack", "", "did you mean client.rack?"),
        (
            "clint.rack",
            "w",
            "did you mean client.rack? `headrace options w` lists all 13 options",
        ),
    ],
)
def test_a_hint_never_lists_many_names(key: str, name: str, hint: str) -> None:
    """It names the one that is near, keys by a pattern too, and the command that lists all."""
    with pytest.raises(ConfigError) as caught:
        parse_config(Wide, {key: "x"}, name=name)

    assert hint == caught.value.hint


def test_a_hint_of_one_option() -> None:
    """Of a section with one option the hint does not speak of all."""

    @dataclass
    class Single:
        path: str = option("One.", default="")

    with pytest.raises(ConfigError) as caught:
        parse_config(Single, {"zzz": "x"}, name="s")
    assert "`headrace options s` describes its option" == caught.value.hint


def test_all_at_once() -> None:
    """Every mistake is in one error, the missing options too."""
    with pytest.raises(ConfigError) as caught:
        parse_config(Everything, {"acks": "x", "ratio": "y", "pth": "z"})

    assert ["path", "acks", "ratio", "pth"] == [p.key for p in caught.value.problems]
    assert Problem("path", "is required", "Where to write.") == caught.value.problems[0]


def test_defaults_are_not_shared() -> None:
    """Two configurations never share one default mapping."""
    first, second = (parse_config(Everything, {"path": "out"}) for _ in range(2))

    assert first.nodes is not second.nodes


def test_declared_options() -> None:
    """Options are listed under their keys in the order of declaration."""
    found = declared_options(Everything)

    assert ["path", "acks", "retries.max"] == list(found)[:3]
    assert "How often." == found["retries.max"][1].doc


@given(
    st.dictionaries(
        st.sampled_from(["path", "retries.max", "ratio", "nodes", "client.x"]) | st.integers(),
        st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.text()) | st.binary(),
    )
)
def test_any_input(config: Any) -> None:  # noqa: ANN401 (anything that YAML may hold)
    """With any content of YAML it is a configuration or a ConfigError (I9)."""
    try:
        parsed = parse_config(Everything, config)
    except ConfigError as error:
        assert error.problems  # noqa: PT017 (either end is right; neither may be something else)
    else:
        assert isinstance(parsed.ratio, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """A secret of each kind of field."""

    required: str = option("Must be given.", secret=True)
    optional: str | None = option("May be given.", default=None, secret=True)
    several: Mapping[str, str] = option("A mapping.", default={"a": "canary"}, secret=True)
    by_pattern: Mapping[str, str] = option("By pattern.", keys_allowed=r"x\..+", secret=True)


def test_secrets_have_no_repr() -> None:
    """No secret shows in a `repr`, whether it is required, optional, a mapping or by pattern."""
    made = parse_config(Secrets, {"required": "canary", "optional": "canary", "x.y": "canary"})

    assert "canary" == made.required == made.optional == made.by_pattern["x.y"]
    assert "Secrets()" == repr(made)


@pytest.mark.parametrize("given", [{"sasl.jaas.config": "canary"}, [{"a": "canary"}], ["canary"]])
@pytest.mark.parametrize("key", ["path", "ratio", "retries.max", "follow", "client.id", "tokn"])
def test_nested_values_are_not_repeated(key: str, given: object) -> None:
    """What stands inside a value, under keys that no one declared, is in no message."""
    with pytest.raises(ConfigError) as caught:
        parse_config(Everything, {"path": "out", key: given})

    assert key in str(caught.value)
    assert "canary" not in str(caught.value)
