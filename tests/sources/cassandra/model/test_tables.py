"""Two tables and two jobs of the same logs, whatever happens; and each mistake is found."""

import re
from typing import Final

import pytest

from helpers.model.checks.records import BrokenError
from helpers.model.checks.tables import TablesChecks
from helpers.model.machines.runs import EXAMPLES, run
from helpers.model.machines.tables import Tables
from helpers.sabotage.rules import Sabotage
from helpers.sabotage.tables import TABLES

SEARCHED: Final = 40  # Schedules.


@pytest.mark.soak
def test_a_table_beside_its_job_takes_nothing_from_it() -> None:
    """I1 to I3, I5 to I7 for both: shared markers never move for one table (line 33)."""
    assert EXAMPLES // 2 <= run(Tables, EXAMPLES // 2)


@pytest.mark.parametrize("sabotage", TABLES, ids=lambda sabotage: sabotage.__name__)
def test_the_model_of_tables_catches(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mistake is found, by the check of the rule that it breaks."""
    sabotage(monkeypatch)
    monkeypatch.setattr(TablesChecks, "heeds", TABLES[sabotage])

    with pytest.raises(BrokenError, match=re.escape(TABLES[sabotage])):
        run(Tables, SEARCHED, number=0)
