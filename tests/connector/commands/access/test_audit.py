"""`headrace audit` prints the audit log, and says whether it is complete."""

import contextlib
from pathlib import Path

import pytest

from headrace.connector.commands.access.audit import BROKEN_STATUS, main
from headrace.connector.control.commands import Commands
from headrace.connector.language.statements import CreateSink
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError


def test_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines are printed; a line that was changed is named."""
    state = tmp_path / "state.db"
    with contextlib.closing(open_notes(state)) as notes:
        Commands(notes).create_sink(CreateSink(name="k", uri="bus://a"))
    assert 0 == main(["--state", str(state)])
    assert '"verb": "create_sink"' in capsys.readouterr().out
    audit = tmp_path / "state.db.audit"
    audit.write_text(audit.read_text().replace('"k"', '"x"'))

    assert BROKEN_STATUS == main(["--state", str(state)])
    assert "error [audit_broken]: line 1" in capsys.readouterr().err


def test_a_file_that_names_the_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As other commands it takes the worker's file in place of the state."""
    with contextlib.closing(open_notes(tmp_path / "state.db")) as notes:
        Commands(notes).create_sink(CreateSink(name="k", uri="bus://a"))
    (tmp_path / "worker.yaml").write_text("state: state.db\nsource: {plugin: files, path: x}\n")

    assert 0 == main(["--state", str(tmp_path / "worker.yaml")])
    assert '"verb": "create_sink"' in capsys.readouterr().out


def test_missing(tmp_path: Path) -> None:
    """A state file without an audit log is a named error."""
    with pytest.raises(ConfigError, match="cannot be read"):
        main(["--state", str(tmp_path / "none.db")])
