"""The lengths of the packed sequences of a vision tower, taken to the host once per forward."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Lengths:
    """Lengths of the pictures (or frames) packed into one tensor; none is zero.

    `values` sum to the number of rows. `tensor` (sequences,) int32 on the CPU and `ends` (cumulative) are the two forms
    in which attention operators want them.
    """

    values: tuple[int, ...]
    tensor: "torch.Tensor"
    ends: tuple[int, ...]

    @staticmethod
    def of(values: Sequence[int], rows: int) -> "Lengths":
        """From lengths. Raises ValueError unless all are positive and they sum to `rows`."""
        import torch

        if any(value <= 0 for value in values) or sum(values) != rows:
            raise ValueError(f"lengths of pictures {list(values)[:8]} do not make up the {rows} patches")
        tensor = torch.tensor(values, dtype=torch.int32)
        return Lengths(tuple(values), tensor, tuple(tensor.cumsum(0).tolist()))

    @staticmethod
    def of_offsets(offsets: Sequence[int], rows: int) -> "Lengths":
        """From offsets 0 < a < b < ... < rows.

        Raises ValueError for anything else, such as [0, 3520, 3520, 3520], lengths read as offsets.
        """
        ends = list(offsets)
        if ends[:1] != [0] or ends[-1] != rows or any(b <= a for a, b in itertools.pairwise(ends)):
            raise ValueError(
                f"offsets of pictures must begin with 0, increase, and end with the {rows} patches; they are {ends[:8]}"
            )
        return Lengths.of([b - a for a, b in itertools.pairwise(ends)], rows)

    @property
    def by_length(self) -> dict[int, list[int]]:
        """Positions of the sequences of each length."""
        groups: dict[int, list[int]] = {}
        for position, value in enumerate(self.values):
            groups.setdefault(value, []).append(position)
        return groups


class LengthsOfForward:
    """Takes the lengths of a forward from what the tower hands to each of its layers, with one copy to the host.

    All layers of a forward are handed the same tensor object; it is held, so that no other can take its place unseen.
    `forget` belongs at the beginning of each forward, because a tensor may be filled anew in place.
    """

    def __init__(self) -> None:
        self._source: torch.Tensor | None = None
        self._lengths: Lengths | None = None

    def forget(self, *_: object) -> None:
        """Take the lengths anew at the next layer; usable as a module's forward pre-hook."""
        self._source = self._lengths = None

    def get(self, source: "torch.Tensor", rows: int, as_offsets: bool) -> Lengths:
        """Lengths from `source`, true offsets or lengths (whose empty entries are left out).

        Raises ValueError when they do not fit `rows`.
        """
        if self._lengths is None or source is not self._source:
            values = [int(value) for value in source.tolist()]
            known = Lengths.of_offsets(values, rows) if as_offsets else Lengths.of([v for v in values if v], rows)
            self._source, self._lengths = source, known
        return self._lengths
