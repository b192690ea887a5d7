"""Methods our plan adds to vLLM's worker class with --worker-extension-cls; the API server calls them by name."""

import os
from typing import Any

from ascend_vl.drawing.worker import DrawingWorker
from ascend_vl.verify.worker import CaptureWorker


class WorkerExtension(DrawingWorker, CaptureWorker):
    """vLLM mixes this into its worker; `self` is the worker. Names must not collide with the worker's own."""

    def ascend_vl_status(self) -> dict[str, Any]:
        """What is active in this worker: the positive proof that the plugin works here. Plain JSON values."""
        from ascend_vl import adaptations, plugin
        from ascend_vl.serve.replaced import replaced
        from ascend_vl.serve.status_route import versions

        worker: Any = self
        model = worker.model_runner.get_model()
        return {
            "pid": os.getpid(),
            "rank": int(worker.rank),
            "device": str(worker.device),
            "plugin": plugin.active(),
            "model_class": f"{type(model).__module__}.{type(model).__qualname__}",
            "drawing": bool(getattr(model, "drawing", False)),
            "parameters": sum(p.numel() for p in model.parameters()),
            "bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
            "adaptations": adaptations.report(),
            "replaced": replaced(),
            "versions": versions(),
        }
