"""What goes into a plan and what a plan is."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

if TYPE_CHECKING:
    from ascend_vl.machine import Machine
    from ascend_vl.plan.memory import Memory
    from ascend_vl.plan.model import Model

Source = Literal["rule", "default", "user"]


@dataclass(frozen=True)
class Wishes:
    """What the user asked for; None leaves it to the rules.

    `nodes` is the number of machines like the planned one, `master_addr` the first one's address. `extra` is passed
    through to vLLM as it is. `api_key` reaches the environment of the server and is never printed.
    """

    max_model_len: int | None = None
    drawing: Literal["on", "off"] | None = None
    tensor_parallel_size: int | None = None
    dtype: Literal["float16", "bfloat16", "float32"] | None = None
    gpu_memory_utilization: float | None = None
    host: str | None = None
    port: int | None = None
    served_model_name: str | None = None
    api_key: str | None = field(default=None, repr=False)
    load_format: str | None = None
    max_num_seqs: int | None = None
    enforce_eager: bool | None = None
    nodes: int = 1
    master_addr: str | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Value:
    """One resolved value: where it comes from and why. `rule_id` names the row of the rule table."""

    name: str
    value: object
    source: Source
    reason: Text
    rule_id: str | None = None


@dataclass(frozen=True)
class Plan:
    """The resolved plan. `command` is an argv that starts with `vllm serve MODEL`; secrets are only in `secrets`."""

    model: "Model"
    machine: "Machine"
    command: list[str]
    environment: dict[str, str]
    values: list[Value]
    adaptations: list[str]
    memory: "Memory"
    warnings: list[Text]
    engine: Literal["vllm-cpu", "vllm-ascend"]
    drawing: bool
    tensor_parallel_size: int
    nodes: int = 1
    secrets: dict[str, str] = field(default_factory=dict, repr=False)

    def value(self, name: str) -> object:
        """The resolved value of that name, None when the plan does not set it."""
        return next((value.value for value in self.values if value.name == name), None)


class DoesNotFit(AscendVLError):
    """The plan was resolved but its memory does not add up; `plan` holds it, with the sum and what would fit."""

    def __init__(self, plan: Plan) -> None:
        from ascend_vl.plan.wording import memory_sum, way_out

        super().__init__(
            "does-not-fit",
            Text(f"{plan.model.name} does not fit this machine.", f"{plan.model.name} 在本机放不下。"),
            memory_sum(plan.memory),
            way_out(plan.memory),
            exit_code=1,
        )
        self.plan = plan
