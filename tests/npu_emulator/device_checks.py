"""Checks of the emulated device. Each runs in a process of the machine it names; `test_device.py` starts them.

usage: python device_checks.py CHECK...   prints one JSON line a check: its name and what went wrong, or null
"""

import json
import sys
import traceback
from collections.abc import Callable

import torch

MACHINES: dict[str, str] = {}


def on(options: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Options of `python -m npu_emulator` for the decorated check; checks of one machine share a process."""

    def mark(check: Callable[[], None]) -> Callable[[], None]:
        MACHINES[check.__name__] = options
        return check

    return mark


def refused(call: Callable[[], object], *words: str, code: int | None = None) -> RuntimeError:
    """The error of a call that must fail with these words, and this code of the runtime."""
    try:
        call()
    except RuntimeError as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in {error}"
        assert code is None or getattr(error, "code", None) == code, f"code {getattr(error, 'code', None)}"
        return error
    raise AssertionError("it was not refused")


def clock() -> dict[str, int]:
    from npu_emulator import build

    return build.load().clock()


def check_device_is_real() -> None:
    tensor = torch.ones(3).npu()
    assert str(tensor.device) == "npu:0" and tensor.is_npu and not tensor.is_cpu
    assert tensor.cpu().is_cpu and tensor.tolist() == [1, 1, 1]
    assert torch.npu.get_device_name() == "Ascend310P3" and torch.npu.get_soc_version() in range(200, 206)


@on("--chip 910B3")
def check_other_chip() -> None:
    assert torch.npu.get_device_name() == "Ascend910B3" and torch.npu.get_soc_version() in range(220, 226)
    assert torch.npu.is_bf16_supported()


def check_mixed_operands_are_refused() -> None:
    npu, cpu = torch.ones(4, 4).npu(), torch.ones(4, 4)
    for call in (
        lambda: npu + cpu,
        lambda: torch.mm(npu, cpu),
        lambda: torch.nn.functional.layer_norm(npu, (4,), cpu[0]),
        lambda: torch.cat([npu, cpu]),
        lambda: npu.index_copy_(0, torch.tensor([0, 1]), npu[:2].clone()),
    ):
        refused(call, "device")
    assert (npu + torch.tensor(1.0)).sum().item() == 32  # a number without dimensions goes along


def check_operators_refuse_the_wrong_side() -> None:
    import torch_npu

    rows = torch.randn(2, 64).half()
    refused(lambda: torch_npu.npu_rms_norm(rows, rows[0].npu(), 1e-6), "NPU tensor", "input", code=100)


def check_seq_len_left_on_the_device_is_rejected() -> None:
    import torch_npu

    q = torch.randn(8, 2, 64).half().npu()
    lengths = torch.tensor([3, 5], dtype=torch.int32)
    arguments = {"query": q, "key": q, "value": q, "scale_value": 0.125, "num_heads": 2, "num_kv_heads": 2}
    out = torch.zeros_like(q)
    torch_npu._npu_flash_attention_unpad(**arguments, seq_len=lengths, out=out)
    assert out.abs().sum().item() > 0
    refused(
        lambda: torch_npu._npu_flash_attention_unpad(**arguments, seq_len=lengths.npu(), out=out), "seq_len", "host"
    )


def check_every_operator_matches_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(6, 6, generator=generator) for _ in range(2))
    mask = a > 0
    cases: list[Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]] = [
        lambda x, y, m: x @ y + 1,
        lambda x, y, m: torch.nn.functional.linear(x, y, y[0]),
        lambda x, y, m: torch.softmax(x, -1).half(),
        lambda x, y, m: torch.nn.functional.layer_norm(x, (6,)),
        lambda x, y, m: x.t().contiguous().view(4, 9),
        lambda x, y, m: torch.where(m, x, y),
        lambda x, y, m: x[m],
        lambda x, y, m: x[:, [1, 3]],
        lambda x, y, m: x.sort(-1).values,
        lambda x, y, m: torch.cat([x[:2], y[2:]]).cumsum(0),
        lambda x, y, m: x.unfold(0, 3, 2),
        lambda x, y, m: x.clone().index_put_((m,), y[m]),
        lambda x, y, m: x.clone().masked_scatter_(m, y),
        lambda x, y, m: torch.nn.functional.conv1d(x[None], y[:3, :, None]),
        lambda x, y, m: torch.nn.functional.scaled_dot_product_attention(x[None], y[None], x[None]),
        lambda x, y, m: torch.add(x, y, out=torch.empty(0, device=x.device)),
        lambda x, y, m: torch.view_as_complex(x.view(6, 3, 2)).abs(),
        lambda x, y, m: x.chunk(3)[1].mul_(2),
        lambda x, y, m: torch.arange(6, device=x.device) * 2,
        lambda x, y, m: torch.full((2, 2), 3.0, device=x.device),
    ]
    for number, case in enumerate(cases):
        expected = case(a.clone(), b.clone(), mask.clone())
        seen = case(a.npu(), b.npu(), mask.npu())
        assert seen.device.type == "npu", number  # type: ignore[attr-defined]
        assert torch.allclose(seen.cpu().float(), expected.float(), atol=1e-6), number  # type: ignore[attr-defined]


def check_views_share_memory() -> None:
    base = torch.zeros(4, 4, device="npu")
    base.view(16)[3] = 1
    base.t()[0, 1] = 2
    base.unfold(0, 2, 2)[1].fill_(5)
    assert base.cpu()[0, 3] == 1 and base.cpu()[1, 0] == 2 and base.cpu()[2, 0] == 5


def check_layers_and_copies() -> None:
    layer = torch.nn.Conv3d(3, 4, (2, 4, 4), stride=(2, 4, 4))
    picture = torch.randn(1, 3, 2, 8, 8)
    assert torch.allclose(layer(picture), layer.npu()(picture.npu()).cpu(), atol=1e-5)
    assert next(layer.parameters()).device.type == "npu"
    import copy
    import tempfile

    tensor = torch.arange(5).npu()
    assert torch.equal(copy.deepcopy(tensor).cpu(), tensor.cpu())
    with tempfile.NamedTemporaryFile() as file:
        torch.save(tensor, file.name)
        assert torch.load(file.name).device.type == "npu"


def check_random_numbers_repeat() -> None:
    torch.manual_seed(3)
    first = torch.randn(4, device="npu")
    torch.manual_seed(3)
    assert torch.equal(first, torch.randn(4, device="npu"))
    own = torch.Generator(device="npu").manual_seed(3)
    assert torch.equal(first, torch.randn(4, device="npu", generator=own))
    assert not torch.equal(first, torch.randn(4, device="npu", generator=own))


@on("--memory 0.015625")  # 16 MiB
def check_memory_limit_is_exact() -> None:
    total = torch.npu.mem_get_info()[1]
    assert total == 16 * 2**20
    kept = torch.empty(total - 4096, dtype=torch.uint8, device="npu")
    assert torch.npu.memory_allocated() == total - 4096
    error = refused(lambda: torch.empty(4097, dtype=torch.uint8, device="npu"), "NPU out of memory", code=207001)
    assert isinstance(error, torch.OutOfMemoryError)
    last = torch.empty(4096, dtype=torch.uint8, device="npu")
    assert torch.npu.mem_get_info() == (0, total)
    refused(lambda: last[:1] + 1, "NPU out of memory")
    del kept
    assert torch.npu.memory_allocated() == 4096 and torch.npu.memory_reserved() == total
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info() == (total - 4096, total)
    assert torch.npu.max_memory_allocated() == total
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.memory_stats()["allocated_bytes.all.peak"] == 4096


@on("--memory 64")
def check_large_memory_is_committed_lazily() -> None:
    large = torch.zeros(60 * 2**30, dtype=torch.uint8, device="npu")
    large[-1] = 7
    assert large[-1].item() == 7 and large[12345].item() == 0
    refused(lambda: torch.empty(5 * 2**30, dtype=torch.uint8, device="npu"), "NPU out of memory")


@on("--chips 2")
def check_processes_share_a_chip() -> None:
    import subprocess

    kept = torch.empty(2**20, dtype=torch.uint8, device="npu:1")
    code = "import torch; print(torch.npu.mem_get_info(0)[0], torch.npu.mem_get_info(1)[0])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [int(n) for n in out] == [4 * 2**30, 4 * 2**30 - 2**20], (out, kept.shape)


@on("--chips 2")
def check_chips_are_separate() -> None:
    first, second = torch.ones(2, device="npu:0"), torch.ones(2, device="npu:1")
    assert torch.npu.device_count() == 2 and second.device.index == 1 and (second + 1).device.index == 1
    refused(lambda: first + second, "npu:0", "npu:1")
    assert torch.equal(first.to("npu:1") + second, second * 2)
    with torch.npu.device(1):
        assert torch.empty(1, device="npu").device.index == 1
    refused(lambda: torch.npu.set_device(2), code=107001)


def check_downloads_arrive_when_waited_for() -> None:
    source = torch.arange(4.0).npu()
    target = torch.full((4,), -1.0, pin_memory=True)
    target.copy_(source, non_blocking=True)
    event = torch.npu.Event()
    event.record()
    source.zero_()  # later in the queue: must not show
    assert target.tolist() == [-1] * 4
    event.synchronize()
    assert target.tolist() == [0, 1, 2, 3]
    assert torch.ones(2).npu().to("cpu").tolist() == [1, 1]  # a blocking copy waits by itself


def check_clock_shows_who_waited() -> None:
    torch.npu.synchronize()
    before = clock()
    x = torch.ones(8).npu() * 2
    between = clock()
    assert between["queued"] > before["queued"] and between["waits"] == before["waits"]
    assert between["completed"] < between["queued"]
    assert x.sum().item() == 16
    after = clock()
    assert after["waits"] == between["waits"] + 1 and after["device_to_host"] == between["device_to_host"] + 1
    assert after["completed"] == after["queued"]


@on("--faults h2d-race")
def check_uploads_race() -> None:
    source = torch.ones(4, pin_memory=True)
    target = torch.zeros(4, device="npu")
    target.copy_(source, non_blocking=True)
    raced = target + 0
    torch.npu.synchronize()
    assert raced.tolist() == [0] * 4 and target.tolist() == [1] * 4
    target.copy_(source * 2)
    assert target.tolist() == [2] * 4


@on("--faults index-put")
def check_lost_device_stays_lost() -> None:
    x = torch.zeros(4, device="npu")
    kept = x + 1
    refused(lambda: x.__setitem__(torch.tensor([True, False, True, False]), 1.0), "IndexPut", code=507018)
    refused(lambda: kept + 1, code=507018)
    refused(torch.npu.synchronize, code=507018)
    refused(kept.cpu, code=507018)


@on("--faults index-put,late-error")
def check_late_errors_surface_elsewhere() -> None:
    x = torch.zeros(4, device="npu")
    x[torch.tensor([True, False, True, False])] = torch.ones(2).npu()
    seen = x + 1  # still fine
    assert seen.shape == (4,)
    refused(torch.npu.synchronize, "IndexPut", code=507018)
    refused(lambda: x + 1, code=507018)


def check_graph_capture_and_replay() -> None:
    import torch_npu

    rows, weight = torch.ones(2, 64).half().npu(), torch.ones(64).half().npu()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        assert torch.npu.is_current_stream_capturing()
        normal = torch_npu.npu_rms_norm(rows * 2, weight, 1e-6)[0]
        total = normal.sum(-1)
        total.add_(1)
        piece = normal[1:].view(8, 8).clone()
        refused(total.cpu, "captured", code=107027)
        refused(torch.npu.synchronize, code=107027)
        refused(total[0].item, code=107027)
    addresses = [t.data_ptr() for t in (normal, total, piece)]
    rows.copy_(torch.arange(128.0).view(2, 64))
    graph.replay()
    wide = rows.float().cpu() * 2
    expected = (wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()).half()
    assert torch.allclose(normal.cpu(), expected, atol=2e-3)
    assert torch.allclose(total.cpu().float(), expected.float().sum(-1) + 1, atol=0.5)
    assert torch.equal(piece.cpu().view(1, 64), normal[1:].cpu())
    assert [t.data_ptr() for t in (normal, total, piece)] == addresses
    refused(torch.npu.NPUGraph().replay, code=107025)


def check_streams_and_events() -> None:
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        assert torch.npu.current_stream().npu_stream == stream.npu_stream
        x = torch.ones(2, device="npu")
    assert torch.npu.current_stream() == torch.npu.default_stream()
    event = torch.npu.Event(enable_timing=True)
    event.record(stream)
    torch.npu.current_stream().wait_event(event)
    torch.npu.current_stream().wait_stream(stream)
    stream.synchronize()
    assert event.query() and x.sum().item() == 2


def check_only_names_of_the_version_exist() -> None:
    import torch_npu

    from npu_emulator import calls

    emulated = {name for name, op in calls.available().items() if op.namespace == "torch_npu" and "." not in name}
    assert len(emulated) > 30 and emulated <= calls.published()
    assert all(hasattr(torch_npu, name) for name in calls.published())
    assert not hasattr(torch_npu, "npu_no_such_operator") and not hasattr(torch.npu, "no_such_function")
    refused(torch_npu.npu_transpose_batchmatmul, "npu_transpose_batchmatmul is published but not emulated", code=0)


@on("--stack 0.11.0")
def check_only_names_of_the_oldest_version_exist() -> None:
    check_only_names_of_the_version_exist()


@on("--stack 0.18.0")
def check_newer_names_are_absent() -> None:
    import torch_npu

    assert torch_npu.__version__ == "2.9.0.post1"
    assert not hasattr(torch_npu, "_npu_flash_attention_v3") and hasattr(torch_npu, "_npu_flash_attention")
    check_only_names_of_the_version_exist()


@on("--stack 0.23.0.post1")
def check_newer_names_are_there() -> None:
    import torch_npu

    assert torch_npu.__version__ == "2.10.0.post4" and hasattr(torch_npu, "_npu_flash_attention_v3")


COLLECTIVES = """
import os, sys, torch, torch.distributed as dist
rank = int(sys.argv[1])
torch.npu.set_device(rank)
dist.init_process_group("hccl", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
def mine(*values): return torch.tensor(values, dtype=torch.float16, device=f"npu:{rank}")
x = mine(1 + rank, 2)
dist.all_reduce(x)
assert x.tolist() == [3, 4], x
dist.broadcast(x, 1)
parts = [torch.zeros_like(x) for _ in range(2)]
dist.all_gather(parts, mine(rank, rank))
assert [p.tolist() for p in parts] == [[0, 0], [1, 1]], parts
whole = torch.zeros(4, dtype=torch.float16, device=x.device)
dist.all_gather_into_tensor(whole, mine(rank, rank + 5))
assert whole.tolist() == [0, 5, 1, 6], whole
piece = mine(0)
dist.reduce_scatter_tensor(piece, mine(1, 10))
assert piece.tolist() == [[2], [20]][rank], piece
swapped = mine(0, 0)
dist.all_to_all_single(swapped, mine(10 * rank, 10 * rank + 1))
assert swapped.tolist() == [[0, 10], [1, 11]][rank], swapped
lists = [mine(0), mine(0)]
dist.all_to_all(lists, [mine(rank), mine(rank + 2)])
assert [t.item() for t in lists] == [[0, 1], [2, 3]][rank], lists
received = mine(0)
dist.send(mine(7), 1) if rank == 0 else dist.recv(received, 0)
assert rank == 0 or received.item() == 7
assert x.device.index == rank
dist.barrier()
work = dist.all_reduce(x, async_op=True)
work.wait()
assert dist.get_backend() == "hccl" and x.tolist() == [6, 8], x
dist.destroy_process_group()
"""


@on("--chips 2")
def check_collectives_over_two_chips() -> None:
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        commands = [[sys.executable, "-c", COLLECTIVES, str(rank), f"{folder}/store"] for rank in range(2)]
        started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
        errors = [process.communicate(timeout=300)[1] for process in started]
        assert [process.returncode for process in started] == [0, 0], "\n".join(errors)


def main(names: list[str]) -> None:
    for name in names:
        try:
            globals()[name]()
            wrong = None
        except BaseException:
            wrong = traceback.format_exc()
        print(json.dumps([name, wrong]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
