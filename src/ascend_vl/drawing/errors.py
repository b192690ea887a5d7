"""Refusals of a drawing request: an AscendVLError that also names the field that is wrong."""

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text


class Refusal(AscendVLError):
    """A request that is not drawn. `param` is the OpenAI field at fault (None: the request as a whole)."""

    def __init__(self, code: str, what: Text, why: Text, do: Text, param: str | None = None, status: int = 400) -> None:
        super().__init__(code, what, why, do)
        self.param, self.status = param, status
