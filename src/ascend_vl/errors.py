"""The one kind of error a user is shown: what happened, why, what to do next."""

from ascend_vl.language import Text


class AscendVLError(Exception):
    """A failure that is the user's to mend, or ours to name.

    `code` is stable and documented (docs/*/errors.md). `exit_code` follows the command contract:
    1 a verdict was reached and it is not good, 2 no verdict.
    """

    def __init__(self, code: str, what: Text, why: Text, do: Text, exit_code: int = 2) -> None:
        super().__init__(code, what, why, do)
        self.code, self.what, self.why, self.do, self.exit_code = code, what, why, do, exit_code

    def __str__(self) -> str:
        return f"{self.code}: {self.what} {self.why} {self.do}"

    def to_json(self) -> dict[str, dict[str, str]]:
        """The error object of the command contract."""
        return {"error": {"code": self.code, "what": str(self.what), "why": str(self.why), "do": str(self.do)}}
