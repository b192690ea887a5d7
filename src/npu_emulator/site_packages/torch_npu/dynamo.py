"""What torch.compile asks about a device."""

from typing import Any

import torch

from npu_emulator.machine import current


def register() -> None:
    """Tell torch.compile about device `npu`; called when torch._dynamo is there."""
    from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

    class NpuInterface(DeviceInterface):
        """Chips, streams and events of the emulated NPU."""

        device = torch.npu.device  # type: ignore[attr-defined]
        Event = torch.npu.Event  # type: ignore[attr-defined]
        Stream = torch.npu.Stream  # type: ignore[attr-defined]

        class Worker:
            """The device of a compile worker."""

            @staticmethod
            def set_device(device: int) -> None:
                """Make `device` the current chip."""
                torch.npu.set_device(device)  # type: ignore[attr-defined]

            @staticmethod
            def current_device() -> int:
                """The current chip."""
                return int(torch.npu.current_device())  # type: ignore[attr-defined]

            @staticmethod
            def get_device_properties(device: Any = None) -> Any:
                """Properties of a chip."""
                return torch.npu.get_device_properties(device)  # type: ignore[attr-defined]

        current_device = staticmethod(torch.npu.current_device)  # type: ignore[attr-defined]
        set_device = staticmethod(torch.npu.set_device)  # type: ignore[attr-defined]
        device_count = staticmethod(torch.npu.device_count)  # type: ignore[attr-defined]
        is_available = staticmethod(torch.npu.is_available)  # type: ignore[attr-defined]
        synchronize = staticmethod(torch.npu.synchronize)  # type: ignore[attr-defined]
        current_stream = staticmethod(torch.npu.current_stream)  # type: ignore[attr-defined]
        set_stream = staticmethod(torch.npu.set_stream)  # type: ignore[attr-defined]
        get_device_properties = staticmethod(torch.npu.get_device_properties)  # type: ignore[attr-defined]
        stream = staticmethod(torch.npu.stream)  # type: ignore[attr-defined]

        @staticmethod
        def exchange_device(device: int) -> int:
            """Make `device` current; the one before."""
            before = int(torch.npu.current_device())  # type: ignore[attr-defined]
            torch.npu.set_device(device)  # type: ignore[attr-defined]
            return before

        maybe_exchange_device = exchange_device

        @staticmethod
        def get_raw_stream(device_index: int) -> int:
            """A number that names the current stream."""
            return int(torch.npu.current_stream(device_index).npu_stream)  # type: ignore[attr-defined]

        @staticmethod
        def get_compute_capability(device: Any = None) -> str:
            """The chip's name."""
            return current().chip

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            """Whether the chip has bfloat16."""
            return not current().is_310p

    register_interface_for_device("npu", NpuInterface)
    for index in range(torch.npu.device_count()):  # type: ignore[attr-defined]
        register_interface_for_device(f"npu:{index}", NpuInterface)
