"""A mistake in a command's arguments is one line, with what was probably meant."""

import pytest

from headrace.connector.commands.cli import main


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (
            ["verify", "--jsn", "x.yaml"],
            "verify: unrecognized arguments: --jsn",
            "did you mean --json? ",
        ),
        (["--debgu", "run"], "headrace: unrecognized arguments: --debgu", "did you mean --debug? "),
        (
            ["accept", "--policy", "expir", "x.yaml"],
            "accept: argument --policy: invalid choice: 'expir'",
            "did you mean expire? ",
        ),
        (["run"], "run: the following arguments are required: JOB.yaml", "`headrace run --help` "),
        (
            ["dlq"],
            "dlq: the following arguments are required: VERB",
            "VERB is one of list, show, redrive. `headrace dlq --help` ",
        ),
        (
            ["realtime"],
            "the following arguments are required: mode, JOB.yaml",
            "mode is one of on, off. ",
        ),
        (
            ["verify", "x.yaml", "--qqqq"],
            "verify: unrecognized arguments: --qqqq",
            "`headrace verify",
        ),
        (
            ["inspect", "--schem", "a", "b", "--qq"],
            "unrecognized arguments: --qq",
            "`headrace inspect",
        ),
        (["exec", "SHOW STATUS"], "unrecognized arguments: SHOW STATUS", "-e has the statements, "),
        (["exec", "-c", "SHOW STATUS"], "unrecognized arguments: -c", "-e has the statements, "),
        (["exec", "--stat", "x", "--xecute", "x"], "arguments: --xecute", "did you mean --execute"),
    ],
)
def test_what_was_meant(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str, hint: str
) -> None:
    """It ends with 2; a misspelt flag or choice gets the nearest one as a hint."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    first, second = capsys.readouterr().err.splitlines()

    assert 2 == ended.value.code
    assert first.startswith("error [arguments]: headrace")
    assert said in first
    assert second.startswith(f"hint: {hint}")
