"""Lets torchvision's CUDA wheel import beside the CPU build of torch; copied into the base of the stacks.

torchvision registers fake kernels for `nms` and `qnms` at import, which fails where its compiled library could not
load; the two operators are declared when somebody imports torchvision, so that nothing else becomes slower.
"""

import importlib.abc
import sys

_library = None


class _DeclareFirst(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        global _library
        if name == "torchvision" and _library is None:
            import torch

            _library = torch.library.Library("torchvision", "DEF")
            _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return None


sys.meta_path.insert(0, _DeclareFirst())
