"""What a config class declares can be given on a command line."""

import argparse
from dataclasses import dataclass

import pytest

from headrace.plugins.config.command_line import add_options, config_of
from headrace.plugins.config.options import option
from headrace.plugins.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Options of every kind."""

    tables: tuple[str, ...] = option("Only these.", default=())
    job: str = option("The job file.")
    run: str | None = option("One run.", default=None)
    listen: str = option("Where to listen.", default="127.0.0.1:1")
    shards: int = option("Into so many, 100% of it.", default=64, minimum=1)
    size: int = option("At most so much.", default=0, name="held.bytes_max")
    mode: str = option("How.", default="initial", choices=("initial", "always"))
    password: str | None = option("Opens it.", default=None, secret=True)
    plan: bool = option("Only say what would be done.", default=False)


def parser() -> argparse.ArgumentParser:
    """Return one that takes the job, perhaps a run, and all options."""
    made = argparse.ArgumentParser(prog="p")
    add_options(made, Given, positional={"job": "JOB.yaml", "run": "RUN"})
    return made


def given(*arguments: str) -> Given:
    """Return what *arguments* say."""
    return config_of(Given, parser().parse_args(arguments))


def test_defaults() -> None:
    """What is left out has the default that was declared."""
    assert Given(job="j") == given("j")


def test_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are converted as those of a file, and a secret is what its reference leads to."""
    monkeypatch.setenv("HEADRACE_SECRET_X", "s3")
    found = given(
        *("j", "r1", "--tables", "a.b,c.d", "--held-bytes-max", "1KiB", "--plan"),
        *("--password", "${env:HEADRACE_SECRET_X}", "--mode=always", "--shards", "2"),
    )

    assert ("j", "r1", ("a.b", "c.d")) == (found.job, found.run, found.tables)
    assert (1024, 2, "always") == (found.size, found.shards, found.mode)
    assert (True, "s3") == (found.plan, found.password)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--shards", "0"], "--shards: must be at least 1"),
        (["--held-bytes-max", "much"], "--held-bytes-max: expected a whole number"),
        (["--mode", "alway"], "--mode: expected one of initial, always, found 'alway'"),
        (["--mode", "alway"], "did you mean always?"),
        (["--listen", ""], "--listen: expected a value, found nothing"),
        (["--listen", ""], "is a variable of the shell not set?"),
        (["--password", "canary"], "--password: is a secret and cannot be written down"),
    ],
)
def test_mistakes(arguments: list[str], expected: str) -> None:
    """A mistake is named by the flag, with the hint."""
    with pytest.raises(ConfigError) as caught:
        given("j", *arguments)

    assert expected in str(caught.value)
    assert "canary" not in str(caught.value)


def test_what_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    """What has no default is asked for."""
    with pytest.raises(SystemExit, match="2"):
        given()

    assert "required: JOB.yaml" in capsys.readouterr().err


def test_help() -> None:
    """The help has the declared words, what values look like, and defaults."""
    shown = " ".join(parser().format_help().split())

    assert "JOB.yaml the job file RUN one run" in shown
    assert "--tables NAME,… only these" in shown
    assert "--shards N into so many, 100% of it (default: 64)" in shown
    assert "--held-bytes-max SIZE at most so much" in shown
    assert "--mode {initial,always} how (default: initial)" in shown
    assert "--password REFERENCE opens it, as a reference: '${env:NAME}'" in shown
