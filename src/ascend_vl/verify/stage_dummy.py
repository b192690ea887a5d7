"""Stage A: the engine starts with made-up weights. It proves only that."""

from ascend_vl.language import Text
from ascend_vl.verify import remote, targets
from ascend_vl.verify.capture import status_emulated
from ascend_vl.verify.stages import Session


def run(session: Session) -> None:
    """Start with dummy weights, see /health, stop."""
    session.earn("installed")
    session.progress(str(Text("starting the engine with dummy weights", "正在用虚拟权重启动引擎")))
    with targets.engine(session.model, session.dtype, dummy=True) as server:
        session.earn("started")
        session.check("engine starts", True, Text("with dummy weights", "使用虚拟权重"), **server.stages)
        asked = remote.Server(server.url, server.api_key)
        session.check("health", asked.healthy(), Text("GET /health answers 200", "GET /health 返回 200"))
        session.emulated = session.emulated or status_emulated(server.status or {})
