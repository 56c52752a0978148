"""`headrace options` prints what the options declare about themselves."""

import json

import pytest

from headrace.connector.commands.options import main
from headrace.connector.foundation.job_file import JobFile
from headrace.plugins import ConfigError, declared_options


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name, everything that has options is listed."""
    assert 0 == main([])
    lines = capsys.readouterr().out.splitlines()
    assert {"job", "runtime", "cassandra", "registry", "KafkaSink", "CassandraCdcSource"} <= {
        line.split()[0] for line in lines
    }


def test_sections(capsys: pytest.CaptureFixture[str]) -> None:
    """Each section that a job file or a worker's file can have is the place of some options."""
    sections = [
        key for key, (field, _) in declared_options(JobFile).items() if "Mapping" in str(field.type)
    ]
    assert {"source", "clusters", "sink", "store", "runtime", "rest"} == set(sections)
    assert 0 == main([])
    out = capsys.readouterr().out
    assert [] == [s for s in sections if f"file, `{s}`" not in out and f"`{s}.NAME`" not in out]
    assert 0 == main(["rest"])
    assert "| `listen` | `127.0.0.1:8083` |" in capsys.readouterr().out


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A plugin's options are a table."""
    assert 0 == main(["BusSink"])
    assert "| `bus.stops` | required | Where it stops. |" in capsys.readouterr().out


def test_a_source_has_two_places(capsys: pytest.CaptureFixture[str]) -> None:
    """A source's job-file options and statement options are listed separately, each once."""
    assert 0 == main(["cassandra"])
    out = capsys.readouterr().out
    in_file, _, others = out.partition("## job file, `store` with `plugin: cassandra`")
    in_store, _, in_statement = others.partition("## CREATE DATA_SOURCE, and the config of the c")

    assert in_file.startswith("## job file, `source` with `plugin: cassandra`; ")
    for option in ("nodes", "schema", "consistency", "contact_points"):
        assert f"| `{option}` |" in in_file
        assert f"| `{option}` |" not in in_statement
    assert "| `keyspace` | required |" in in_statement
    assert "| `contact_points` |" in in_store


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("files", ["job file, `source`", "job file, `sink`", "CREATE DATA_SOURCE"]),
        ("FilesFilesSource", ["CREATE DATA_SOURCE"]),
        ("KafkaSink", ["job file, `sink`"]),
        ("kafka", ["job file, `sink`"]),
        ("cassandra-table", ["job file, `source`"]),
        ("registry", ["sink, with `schema.store: registry`"]),
        ("directory", ["sink, with `large.store: directory`"]),
        ("MaskField", ["sink, with `transforms.NAME.type: MaskField`"]),
        ("TableMatches", ["sink, with `predicates.NAME.type: TableMatches`"]),
        ("runtime", ["job file or worker's file, `runtime`"]),
        ("rest", ["worker's file, `rest`"]),
    ],
)
def test_places(name: str, places: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind of options says where they are written."""
    assert 0 == main([name])
    lines = capsys.readouterr().out.splitlines()
    titles = [line.removeprefix("## ") for line in lines if line.startswith("## ")]

    assert len(places) == len(titles)
    assert all(title.startswith(place) for title, place in zip(titles, places, strict=True))


def test_schema_of_several_places(capsys: pytest.CaptureFixture[str]) -> None:
    """Options that may be written in several places have a JSON Schema with alternatives."""
    assert 0 == main(["cassandra", "--format", "json-schema"])
    source, store, statement = json.loads(capsys.readouterr().out)["anyOf"]

    assert "nodes" in source["properties"]
    assert "contact_points" in store["properties"]
    assert "keyspace" in statement["properties"]


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """A section's options are a JSON Schema."""
    assert 0 == main(["runtime", "--format", "json-schema"])
    schema = json.loads(capsys.readouterr().out)
    assert 20 == schema["properties"]["tick_min_ms"]["default"]
    assert not schema["additionalProperties"]


def test_unknown() -> None:
    """A name without options is a named error."""
    with pytest.raises(ConfigError, match="nothing named 'Nope'"):
        main(["Nope"])
    with pytest.raises(ConfigError) as caught:
        main(["kafak"])
    assert caught.value.problems[0].hint.startswith("did you mean kafka? ")
