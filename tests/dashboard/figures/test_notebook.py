from __future__ import annotations

import pytest

from dashboard.figures.notebook import CHARTS
from dashboard.store import LoadedLaunch
from profiler import ParamsError


@pytest.mark.parametrize("name", list(CHARTS))
def test_report_draws_itself_in_a_notebook(name: str, matmul: LoadedLaunch) -> None:
    assert len(matmul.report.figure(name).to_dict()["data"]) > 0
    assert matmul.report.figure(name, units="ns").layout.height > 0


def test_an_unknown_chart_is_named_with_those_there_are(matmul: LoadedLaunch) -> None:
    with pytest.raises(ParamsError, match=r"there is no chart 'pie'. Charts: tensor_core, roles"):
        matmul.report.figure("pie")
