"""The page of a comparison."""

import re
from collections import Counter
from pathlib import Path

from headrace.connector.replay.comparing.reconciling import Outcome
from headrace.connector.replay.comparing.reporting import write_report
from headrace.plugins import NO_ORIGIN


def test_each_bar_has_its_row_of_the_picture(tmp_path: Path) -> None:
    """Bars are as far apart as the rows of the picture are high; the longest is the greatest."""
    outcome = Outcome()
    outcome.in_logs = Counter({"shop.orders": 4})
    outcome.in_topic = Counter({"shop.orders": 3})
    write_report(tmp_path, outcome, NO_ORIGIN, plain_keys=True, title="t")
    page = (tmp_path / "report.html").read_text()

    pictures = re.findall(r'<svg width="\d+" height="(\d+)">(.*?)</svg>', page)
    assert len(pictures) == 2
    for height, picture in pictures:
        tops = [int(top) for top in re.findall(r'<rect x="\d+" y="(\d+)"', picture)]
        assert [tops[0] + i * int(height) // len(tops) for i in range(len(tops))] == tops
    widths = [int(width) for width in re.findall(r'width="(\d+)" height="18"', pictures[0][1])]
    assert [widths[0] * count // 4 for count in (4, 3, 0, 0)] == widths
