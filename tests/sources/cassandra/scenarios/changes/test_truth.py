"""Changes have what recorded statements wrote, value for value, and nothing else."""

import json
from collections import Counter

import pytest

from headrace.sources.cassandra.inspect.command import main
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.recordings.change_effects import ChangeEffects
from helpers.recordings.corpora import recording
from helpers.recordings.statement_effects import stated_effects
from helpers.settings.seeds import soaked

RECORDINGS = [
    *(f"{version}-types" for version in ("4.0", "5.0", "6.0-v9")),
    *(f"{version}-ops" for version in ("4.0", "5.0-v8", "6.0-v9")),
    *(f"{version}-random" for version in ("4.1", "6.0-v9")),
    "5.0-v8-sizes",
    *soaked("4.1-ops", "5.0-ops", "4.0-random", "5.0-random", "5.0-v8-random", "5.0-sizes"),
]
# Statements have times of 2023, but for the extremes; the nodes' own clocks had these times.
NODE_CLOCKS_US = range(1_790_000_000_000_000, 1_900_000_000_000_000)


@pytest.mark.soak
@pytest.mark.parametrize("name", RECORDINGS)
def test_every_statement_is_found_again(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each effect of each statement is printed once, with values, time and TTL, and no other."""
    folder = recording(name)
    assert 0 == main([str(folder / "segments")])
    changes = ChangeEffects(parse_schema((folder / "schema.cql").read_text()))
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    effects = (effect for line in lines for effect in changes.effects(line))
    found = Counter(
        effect._replace(timestamp_us=None) if effect.timestamp_us in NODE_CLOCKS_US else effect
        for effect in effects
    )
    expected = Counter(stated_effects(folder))
    assert expected.total() > 1_000
    assert [] == list((expected - found).elements())[:3]
    assert [] == list((found - expected).elements())[:3]
