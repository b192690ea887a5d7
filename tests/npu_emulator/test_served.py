"""`ascend-vl serve` on emulated chips, asked over HTTP (emulated: nothing about hardware).

Each scenario is one server; `python -m benchmarks.emulated_serving` runs all of them and prints what each check saw.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import served_scenarios  # noqa: E402

from npu_emulator import stacks  # noqa: E402

pytestmark = pytest.mark.emulated

SHORT = (
    "0.23.0.post1 310P3 x2",
    "0.18.0 310P3 x2, plugin broken in one worker",
    "0.18.0 310P3 large",
    "0.18.0 310P3 tool call and 16384 tokens",
    "0.18.0 910B3 HiDream-O1 PIECEWISE",
    "0.18.0 310P3 W8A8",
    "0.23.0.post1 310P3 experts",
    "0.18.0 310P3 clip",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> served_scenarios.Models:
    return served_scenarios.Models(tmp_path_factory.mktemp("served"))


@pytest.mark.parametrize("name", SHORT)
def test_scenario(name: str, models: served_scenarios.Models) -> None:
    stacks.make(name.split()[0], ROOT, ROOT)
    ran = []

    def check(_scenario: str, what: str, function: Callable[[], Any]) -> None:
        function()
        ran.append(what)

    served_scenarios.run(name, models, check)
    assert ran
