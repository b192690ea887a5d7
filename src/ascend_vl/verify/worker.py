"""What a vLLM worker does for `verify`: watch the vision tower, and run it on pictures together and alone.

Mixed into our worker extension; reached through POST /v1/ascend_vl/capture, which exists only in a server started with
ASCEND_VL_CAPTURE=1. Until a method is called nothing is wrapped.
"""

import json
from typing import Any

# The methods that the route may call.
METHODS = (
    "ascend_vl_capture_start",
    "ascend_vl_capture_take",
    "ascend_vl_capture_stop",
    "ascend_vl_capture_together",
    "ascend_vl_point_start",
    "ascend_vl_point_take",
    "ascend_vl_block_start",
    "ascend_vl_block_judge",
)


class CaptureWorker:
    """Methods of a vLLM worker (`self` is the worker). Arguments and results are JSON text: it passes any RPC layer."""

    def ascend_vl_capture_start(self) -> None:
        """Begin to record the calls of the vision tower."""
        from ascend_vl.verify.towers import TowerWatch

        worker: Any = self
        worker.ascend_vl_capture_stop()
        worker._ascend_vl_watch = TowerWatch(_model(worker).visual)

    def ascend_vl_capture_stop(self) -> None:
        """Leave the tower as it was."""
        worker: Any = self
        watch = getattr(worker, "_ascend_vl_watch", None)
        if watch is not None:
            watch.stop()
        worker._ascend_vl_watch = None

    def ascend_vl_capture_take(self, directory: str = "", name: str = "") -> str | None:
        """Stages of the pictures seen since the last take, in the order they ran; rank 0 only.

        With `directory`, their tensors are also written there as `name`.npz, float32.
        """
        import numpy as np

        from ascend_vl.verify import towers

        worker: Any = self
        watch = worker._ascend_vl_watch
        pictures = [picture for call in watch.take() for picture in towers.by_image(call, watch.merge)]
        worker._ascend_vl_pictures = towers.distinct([*getattr(worker, "_ascend_vl_pictures", []), *pictures])[-8:]
        if worker.rank != 0:
            return None
        if directory and pictures:
            arrays = {
                f"image {i}: {tensor}": towers.array(value)
                for i, picture in enumerate(pictures)
                for tensor, value in [("pixel_values", picture["pixel_values"]), *picture["tensors"].items()]
            }
            np.savez(f"{directory}/{name}.npz", **arrays)
        return json.dumps(towers.stages(pictures))

    def ascend_vl_capture_together(self, count: str = "3") -> str | None:
        """`towers.together_against_alone` on the last `count` pictures taken; rank 0 only."""
        from ascend_vl.verify import towers

        worker: Any = self
        pictures = getattr(worker, "_ascend_vl_pictures", [])[-int(count) :]
        result = towers.together_against_alone(_model(worker).visual, pictures)
        return json.dumps(result) if worker.rank == 0 else None

    def ascend_vl_point_start(self, point: str, last_pass: str = "") -> None:
        """Begin to watch one place of the model, in every pass or (any text) in the last one; see `points`."""
        from ascend_vl.verify.points import PointWatch

        worker: Any = self
        worker._ascend_vl_point = PointWatch(_model(worker), point, bool(last_pass))

    def ascend_vl_point_take(self, path: str) -> str | None:
        """Write the tensor seen there to `path` (NPY, float64) and end the watch; rank 0 writes."""
        import numpy as np

        worker: Any = self
        if worker.rank != 0:
            worker._ascend_vl_point.stop()
            return None
        tensor = worker._ascend_vl_point.take()
        np.save(path, tensor.numpy())
        return json.dumps({"shape": list(tensor.shape)})

    def ascend_vl_block_start(self, point: str, last_pass: str = "") -> None:
        """Begin to record every operator inside one block, in every pass or (any text) in the last one."""
        from ascend_vl.verify.replay import BlockWatch

        worker: Any = self
        worker._ascend_vl_block = BlockWatch(_model(worker), point, bool(last_pass))

    def ascend_vl_block_judge(self, base: str, own: str, borders: str, out: str) -> str:
        """`replay.judged` on what the block did on this rank; ranks beyond the first write to a directory of theirs."""
        from pathlib import Path

        from ascend_vl.verify.replay import judged

        worker: Any = self
        watch = worker._ascend_vl_block
        watch.stop()
        place = Path(out) if worker.rank == 0 else Path(out) / f"rank{worker.rank}"
        found = judged(watch, Path(base), Path(own), json.loads(borders), place)
        return json.dumps({**found, "rank": worker.rank, "place": str(place)})


def _model(worker: Any) -> Any:
    runner = worker.model_runner
    return runner.get_model() if hasattr(runner, "get_model") else runner.model
