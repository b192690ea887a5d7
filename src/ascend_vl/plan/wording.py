"""The sum in words."""

from ascend_vl.language import Text
from ascend_vl.plan.activations import GIB
from ascend_vl.plan.memory import Change, Memory


def gib(size: float) -> str:
    """Bytes as GiB with two decimals."""
    return f"{size / GIB:.2f}"


def memory_sum(memory: Memory) -> Text:
    """Every term of the sum on one line: budget, weights, the rest, what is left, what is needed."""
    choice = memory.choice
    needed = choice.max_model_len * memory.kv_token
    weights, ways = gib(memory.weights), choice.tensor_parallel
    if ways > 1:
        weights = f"{gib(memory.weights * ways)} / {ways} = {weights}"
    besides = f"{gib(memory.non_kv)} ({memory.non_kv_rule})"
    chinese = f"{gib(memory.non_kv)}（{memory.non_kv_rule}）"
    if memory.drawing:
        besides = f"{besides}, drawing's workspace {gib(memory.drawing)}"
        chinese = f"{chinese}，绘图工作区 {gib(memory.drawing)}"
    if memory.others:
        besides += f", other processes {gib(memory.others)} (memory-others)"
        chinese += f"，其他进程 {gib(memory.others)}（memory-others）"
    budget = f"{choice.utilisation:g} x {gib(choice.total)} = {gib(memory.budget)} GiB"
    en = f"{budget}; weights {weights}, besides {besides}, left {gib(memory.left)}"
    zh = f"{budget}；权重 {weights}，其他 {chinese}，剩余 {gib(memory.left)}"
    remaining = memory.left - memory.copies
    if memory.copies:
        en += f"; NZ copies {gib(memory.copies)} (memory-nz-vocabulary-310p), remaining {gib(remaining)}"
        zh += f"；NZ 副本 {gib(memory.copies)}（memory-nz-vocabulary-310p），余 {gib(remaining)}"
    if remaining > 0 and memory.kv_share != 1:
        en += f", of which {memory.kv_share:g} becomes KV cache: {gib(memory.kv)}"
        zh += f"，其中 {memory.kv_share:g} 用作 KV 缓存：{gib(memory.kv)}"
    en += f"; {choice.max_model_len} tokens need {gib(needed)} GiB of KV cache"
    zh += f"；{choice.max_model_len} 个 token 需要 {gib(needed)} GiB KV 缓存"
    if memory.mask:
        en += f"; mask {gib(memory.mask)} needs room in the other {gib(memory.outside)}"
        zh += f"；掩码 {gib(memory.mask)} 需放入其余 {gib(memory.outside)}"
    if memory.refused:
        free = gib(memory.free)
        en += f"; vLLM does not start with more than the {free} GiB that others leave free"
        zh += f"；其他进程只留下 {free} GiB，超过时 vLLM 不会启动"
    return Text(en + ".", zh + "。")


def change_text(change: Change) -> Text:
    """One change as an option, with what it leaves."""
    spelled = {
        "tensor_parallel_size": f"--tensor-parallel-size {change.value}",
        "max_model_len": f"--max-model-len {change.value}",
        "gpu_memory_utilization": f"--gpu-memory-utilization {change.value}",
        "quantization": f"a W8A8 checkpoint (weights {gib(change.memory.weights)} GiB)",
        "drawing": "--drawing off",
    }
    option = spelled.get(change.what)
    if option is None:
        first, length = str(change.value).split(", ")
        option = f"--{change.what.split(', ')[0].replace('_', '-')} {first} --max-model-len {length}"
    kv = f"{gib(change.memory.kv)} GiB = {change.memory.kv_tokens} tokens"
    if change.what.startswith("tensor_parallel_size"):
        chips = change.choice.tensor_parallel
        return Text(f"{option} ({chips} chips, KV cache {kv})", f"{option}（{chips} 颗芯片，KV 缓存 {kv}）")
    chinese = option.replace("a W8A8 checkpoint (weights", "使用 W8A8 量化权重（权重").replace(" GiB)", " GiB）")
    return Text(f"{option} (KV cache {kv})", f"{chinese}（KV 缓存 {kv}）")


def way_out(memory: Memory) -> Text:
    """The smallest changes that would fit, or that none does; and to free what others hold."""
    texts = [change_text(change) for change in memory.changes]
    if texts:
        en = "Any of these fits: " + "; ".join(text.en for text in texts) + "."
        zh = "以下任一修改可行：" + "；".join(text.zh for text in texts) + "。"
    else:
        en = "No single change fits: use chips with more memory or a smaller model."
        zh = "没有单项修改能放下：请使用内存更大的芯片或更小的模型。"
    if memory.choice.others:
        en += f" Or end what else holds {gib(memory.choice.others)} GiB of the chip, or take a chip of its own."
        zh += f"或结束占用该芯片 {gib(memory.choice.others)} GiB 的其他进程，或改用独占芯片。"
    return Text(en, zh)
