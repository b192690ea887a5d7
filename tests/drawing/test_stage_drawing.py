"""Stage D over the real routes, lane and worker, without an engine between them: it passes, and sees mistakes."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bare
import pytest
from starlette.testclient import TestClient
from test_routes import app
from test_worker import forget_deepstack, share_first_layer, swap_branches

from ascend_vl.verify import stage_drawing
from ascend_vl.verify.stages import Session, StageFailed

pytestmark = pytest.mark.engine


class Workers:
    """`rpc` of the fakes, answered by the real worker."""

    def __init__(self, worker: bare.BareWorker) -> None:
        self._worker = worker

    async def rpc(self, method: str, args: tuple[Any, ...]) -> list[dict[str, Any]]:
        await asyncio.sleep(0)
        return [getattr(self._worker, method)(*args)]


@pytest.fixture
def session(tiny: Path, worker: bare.BareWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(stage_drawing, "SIDE", 96)
    made = Session(model=tiny, cases=tmp_path / "none", out=tmp_path, requirements=[])
    server = SimpleNamespace(client=lambda: TestClient(app(tiny, Workers(worker))), status={})  # type: ignore[arg-type]
    made._engine = server
    return made


def test_it_passes_and_says_what_was_compared(session: Session) -> None:
    stage_drawing.run(session)
    assert session.statuses == ["drew"]
    assert [check.status for check in session.checks] == ["passed"] * 9
    assert {check.name.split(":")[0] for check in session.checks} == {"own recipe", "guidance", "edit"}
    assert (session.out / "drawings" / "edit.png").exists()


@pytest.mark.parametrize(
    ("mistake", "check"),
    [
        (share_first_layer, "own recipe: prediction of every step"),
        (forget_deepstack, "edit: prediction of every step"),
        (swap_branches, "own recipe: latent after every step"),
    ],
)
def test_it_names_the_first_thing_that_is_wrong(
    session: Session, monkeypatch: pytest.MonkeyPatch, mistake: Any, check: str
) -> None:
    mistake(monkeypatch)
    with pytest.raises(StageFailed, match=check):
        stage_drawing.run(session)
    assert session.statuses == []


def test_a_server_that_cannot_draw_is_not_judged(session: Session, tiny: Path, worker: bare.BareWorker) -> None:
    silent = SimpleNamespace(
        client=lambda: TestClient(app(tiny, Workers(worker), data_parallel_size=2)),  # type: ignore[arg-type]
        status={},
    )
    session._engine = silent
    stage_drawing.run(session)
    assert [check.status for check in session.checks] == ["noted"] and "Data parallel" in session.checks[0].detail
