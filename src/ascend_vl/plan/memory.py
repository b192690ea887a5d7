"""The sum: what one chip (or the host, without chips) has, and what goes into it."""

from dataclasses import dataclass, replace

from ascend_vl.plan.activations import GIB, drawing_bytes, language_bytes, rotary_bytes, tower_bytes
from ascend_vl.plan.model import Model
from ascend_vl.rules import in_range, table


@dataclass(frozen=True)
class Choice:
    """What the sum depends on: vllm-ascend's `version`, `kind` 310P, A2, A3, A5 or cpu, `total` bytes of one chip.

    `others` is what other processes hold of it.
    """

    total: int
    kind: str
    version: str | None
    dtype: str
    tensor_parallel: int
    max_model_len: int
    utilisation: float
    drawing: bool
    max_num_seqs: int
    w8a8: bool = False
    kv_bytes: int | None = None
    others: int = 0


@dataclass(frozen=True)
class Change:
    """A change that would make it fit, with the sum it leads to."""

    what: str
    value: float | int | str
    choice: Choice
    memory: "Memory"


@dataclass(frozen=True)
class Memory:
    """Bytes on one chip. `left` is before the 310P's NZ `copies`; `kv` what becomes KV cache, after its halving too.

    `drawing` is the workspace for it, taken while the weights load. `outside` is what utilisation leaves alone; the
    mask must fit there, because vLLM sizes the KV cache before it exists. `short` is how much is missing (0 when all
    fits); `changes` the smallest changes that would fit.
    """

    choice: Choice
    budget: int
    weights: int
    non_kv: int
    non_kv_rule: str
    rotary: int
    tower: int
    language: int
    others: int
    left: int
    copies: int
    kv_share: float
    kv: int
    kv_token: int
    mask: int
    drawing: int
    outside: int
    changes: tuple[Change, ...] = ()

    @property
    def kv_tokens(self) -> int:
        """Tokens the KV cache holds."""
        return max(0, self.kv) // self.kv_token

    @property
    def short(self) -> int:
        """Bytes missing on one chip."""
        needed = self.choice.max_model_len * self.kv_token
        missing_kv = int((needed - self.kv) / self.kv_share) if self.kv < needed else 0
        missing_outside = max(0, self.mask - self.outside)
        return missing_kv + missing_outside + self.refused

    @property
    def free(self) -> int:
        """What others leave of the chip, bytes."""
        return self.choice.total - self.choice.others

    @property
    def refused(self) -> int:
        """Bytes by which the budget exceeds what is free; vLLM then does not start."""
        checked = self.choice.kind != "cpu" and in_range(self.choice.version, "0.18.0rc1", None)
        return max(0, self.budget - self.free) if checked and self.choice.others else 0

    @property
    def fits(self) -> bool:
        """Whether vLLM starts, one request of max_model_len fits, and the mask beside it."""
        return self.short == 0


def has_full_mask(kind: str, version: str | None) -> bool:
    """Whether a mask of max_model_len squared is built: 310P before 0.21.0rc1."""
    return kind == "310P" and in_range(version, None, "0.21.0rc1")


def kv_share(kind: str, version: str | None) -> float:
    """Share of what is left that becomes KV cache."""
    halved = kind == "310P" and in_range(version, "0.18.0rc1", None)
    return table().setting("memory-kv-share-310p") if halved else 1.0


def nz_copies(model: Model, choice: Choice) -> int:
    """What vllm-ascend holds a second time on 310P, bytes on one chip."""
    if choice.kind != "310P" or not in_range(choice.version, "0.18.0rc1", None) or model.quantised or choice.w8a8:
        return 0
    copies = int(table().setting("memory-nz-vocabulary-310p"))
    return copies * model.vocabulary_bytes(choice.dtype, choice.tensor_parallel)


def _lost_to_others(choice: Choice) -> int:
    """What the worker takes from its own budget because others hold it."""
    counted = in_range(choice.version, "0.11.0rc0", "0.12.0rc1") or (
        choice.kind == "310P" and in_range(choice.version, "0.18.0rc1", None)
    )
    return int(choice.others * table().setting("memory-others")) if counted else 0


def add_up(model: Model, choice: Choice) -> Memory:
    """The sum of one choice. KV cache = share x (utilisation x total - weights - drawing - the rest - others -
    copies)."""
    rules = table()
    weights = (
        model.w8a8_bytes(choice.tensor_parallel)
        if choice.w8a8
        else model.weight_bytes(choice.dtype, choice.tensor_parallel, choice.drawing)
    )
    batched = int(rules.setting("batched-tokens"))
    if choice.kind == "cpu":
        batched = min(batched, choice.max_model_len)
    # The profile run fills the batch with pictures, or takes one that is larger than the batch.
    image_tokens = min(int(rules.setting("image-tokens-max")), max(choice.max_model_len, batched))
    tower = tower_bytes(model, image_tokens, choice.dtype, choice.tensor_parallel, choice.kind != "cpu")
    language = language_bytes(model, batched, choice.max_num_seqs, choice.dtype, choice.tensor_parallel)
    floor = int(rules.setting("memory-non-kv") * GIB)
    rotary = rotary_bytes(model, choice.dtype)
    computed = int(rules.setting("memory-runtime") * GIB) + rotary + max(tower, language)
    cells = choice.max_model_len**2 if has_full_mask(choice.kind, choice.version) else 0
    budget = int(choice.utilisation * choice.total)
    drawing = drawing_bytes(model, choice.dtype, choice.tensor_parallel) if choice.drawing else 0
    non_kv = max(floor, computed)
    others = _lost_to_others(choice)
    left = budget - weights - drawing - non_kv - others
    share = kv_share(choice.kind, choice.version)
    copies = nz_copies(model, choice)
    kv = int((left - copies) * share) if choice.kv_bytes is None else min(choice.kv_bytes, left)
    return Memory(
        choice=choice,
        budget=budget,
        weights=weights,
        non_kv=non_kv,
        non_kv_rule="memory-non-kv" if floor >= computed else "memory-runtime",
        rotary=rotary,
        tower=tower,
        language=language,
        others=others,
        left=left,
        copies=copies,
        kv_share=share,
        kv=kv,
        kv_token=model.kv_token_bytes(choice.dtype, choice.tensor_parallel),
        mask=int(rules.setting("memory-mask-bytes-a-cell")) * cells,
        drawing=drawing,
        outside=choice.total - budget,
    )


def with_changes(model: Model, memory: Memory, chips: int) -> Memory:
    """The same sum with the smallest single changes that would fit, and the smallest pair when no single one does.

    `chips` is how many the machine has; more are suggested too, as a purchase.
    """
    if memory.fits:
        return memory
    single = [change for change in _single(model, memory.choice, chips) if change.memory.fits]
    if memory.choice.kind != "cpu" and not any(change.what == "max_model_len" for change in single):
        single += _pair(model, memory.choice)
    return replace(memory, changes=tuple(single))


def longest_fit(model: Model, choice: Choice) -> int | None:
    """The largest max_model_len, a multiple of 1024 not above the choice's own, that fits; None when 1024 does not."""
    low, high = 0, choice.max_model_len // 1024
    while low < high:
        middle = (low + high + 1) // 2
        if add_up(model, replace(choice, max_model_len=middle * 1024)).fits:
            low = middle
        else:
            high = middle - 1
    return low * 1024 or None


def _change(model: Model, what: str, value: float | int | str, choice: Choice) -> Change:
    return Change(what, value, choice, add_up(model, choice))


def _single(model: Model, choice: Choice, chips: int) -> list[Change]:
    changes = []
    if length := longest_fit(model, choice):
        changes.append(_change(model, "max_model_len", length, replace(choice, max_model_len=length)))
    if choice.kind != "cpu":
        steps = [step / 100 for step in range(int(choice.utilisation * 100) + 1, 96)]
        for step in steps:
            change = _change(model, "gpu_memory_utilization", step, replace(choice, utilisation=step))
            if change.memory.fits:
                changes.append(change)
                break
        changes += _wider(model, choice)
        if not model.quantised:
            changes.append(_change(model, "quantization", "ascend (W8A8)", replace(choice, w8a8=True, drawing=False)))
    if choice.drawing:
        changes.append(_change(model, "drawing", "off", replace(choice, drawing=False)))
    return changes


def _wider(model: Model, choice: Choice) -> list[Change]:
    """The fewest chips with which it fits; before that the fewest with which a shorter length of use does."""
    found: list[Change] = []
    for ways in wider(model, choice.tensor_parallel):
        split = replace(choice, tensor_parallel=ways)
        change = _change(model, "tensor_parallel_size", ways, split)
        if change.memory.fits:
            return [*found, change]
        length = longest_fit(model, split)
        if not found and length and length >= table().setting("length-least"):
            both = replace(split, max_model_len=length)
            found = [_change(model, "tensor_parallel_size, max_model_len", f"{ways}, {length}", both)]
    return found


def _pair(model: Model, choice: Choice) -> list[Change]:
    """More utilisation and fewer tokens together: the first step of utilisation with which any length fits."""
    for step in [step / 100 for step in range(int(choice.utilisation * 100) + 1, 96)]:
        raised = replace(choice, utilisation=step)
        if length := longest_fit(model, raised):
            chosen = replace(raised, max_model_len=length)
            return [_change(model, "gpu_memory_utilization, max_model_len", f"{step}, {length}", chosen)]
    return []


def wider(model: Model, tensor_parallel: int) -> list[int]:
    """Larger tensor-parallel sizes that divide the attention heads of both parts."""
    return [
        ways
        for ways in (2, 4, 8, 16)
        if ways > tensor_parallel and model.text.heads % ways == 0 and model.vision.heads % ways == 0
    ]
