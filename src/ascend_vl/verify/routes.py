"""POST /v1/ascend_vl/capture: what `verify` asks the workers. Only in a server started with ASCEND_VL_CAPTURE=1."""

import os
from typing import Any

VARIABLE = "ASCEND_VL_CAPTURE"
PATH = "/v1/ascend_vl/capture"


def attach(app: Any, args: Any) -> None:
    """Add the route to vLLM's application, when the server was started to be verified."""
    if os.environ.get(VARIABLE) != "1":
        return
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    from ascend_vl.verify.worker import METHODS

    async def capture(request: Request) -> JSONResponse:
        body = await request.json()
        method, arguments = body.get("method"), [str(value) for value in body.get("args", [])]
        if method not in METHODS:
            error = {"message": f"no capture method {method!r}", "type": "invalid_request_error"}
            return JSONResponse({"error": error}, 400)
        results = await request.app.state.engine_client.collective_rpc(method, args=tuple(arguments))
        return JSONResponse({"results": results})

    app.add_route(PATH, capture, methods=["POST"])
