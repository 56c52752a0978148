"""Statements: which of them change something."""

import pytest
from hypothesis import given

from headrace.connector.language.formatting import format_statement
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.statements import Statement, is_question
from helpers.jobs.statements import statements

QUESTIONS = ("DESCRIBE", "DESC", "SHOW", "SELECT", "TAIL", "POLL", "VALIDATE", "CHECK", "PREVIEW")


@given(statements)
def test_only_questions_change_nothing(statement: Statement) -> None:
    """A statement whose verb does something is not taken for a question, and the reverse."""
    text = format_statement(statement)
    is_dry = "SET POSITION" in text and text.endswith("DRY RUN;")

    assert is_question(statement) == (text.startswith(QUESTIONS) or is_dry), text


@pytest.mark.parametrize(("end", "expected"), [("", False), (" DRY RUN", True)])
def test_a_dry_run_is_a_question(end: str, *, expected: bool) -> None:
    """It only says what would be read again."""
    text = f"ALTER DATA_SOURCE cdc ON TABLE s.t SET POSITION = 'earliest'{end}"

    assert expected == is_question(parse_statement(text))
