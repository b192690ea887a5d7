"""Stands in for torch_npu: device `npu`, module `torch.npu`, and exactly the operators the emulated version has."""

import sys


def _autoload() -> None:
    """Named by the entry point through which `import torch` loads this package.

    Above the imports, because `import torch` asks for it when this package was imported first.
    """


import torch  # noqa: E402

from npu_emulator import calls, install, machine, triton_kernels  # noqa: E402

install.stand_ins()
install.device()

from torch_npu import _C as _C  # noqa: E402
from torch_npu import _inductor as _inductor  # noqa: E402
from torch_npu import dynamo, npu  # noqa: E402
from torch_npu import profiler as profiler  # noqa: E402
from torch_npu import utils as utils  # noqa: E402
from torch_npu.libraries import define_operators  # noqa: E402
from torch_npu.process_group import register_hccl  # noqa: E402

__version__ = machine.current().torch_npu


def _install() -> None:
    if not hasattr(torch, "npu"):
        torch._register_device_module("npu", npu)
        torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=None)
    sys.modules["torch.npu"] = npu
    torch.version.cann = machine.current().cann  # type: ignore[attr-defined]
    install.after_import("torch._dynamo.device_interface", dynamo.register)
    triton_kernels.install()
    register_hccl()
    define_operators(globals(), calls.available())


_install()
