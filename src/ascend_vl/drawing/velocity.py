"""From predicted clean pictures to what a scheduler takes: velocity, guidance, sign. Float32 throughout."""

from collections.abc import Sequence

import torch


def network_time(timestep: int) -> torch.Tensor:
    """(1,) float32: 1 - timestep / 1000, computed in float32 as the reference does. 0 is noise, 1 the clean picture."""
    return 1.0 - torch.tensor([timestep], dtype=torch.float32) / 1000.0


def guided_output(
    predicted: Sequence[torch.Tensor], z: torch.Tensor, timestep: int, t_eps: float, guidance: float
) -> torch.Tensor:
    """-(v_u + g (v_c - v_u)) with v = (x - z) / max(timestep / 1000, t_eps); -(v_c) for one branch.

    `predicted` holds x of the prompt's branch and, with guidance, of the unconditional one, (N, values) float32 each.
    """
    sigma = float(torch.tensor(timestep, dtype=torch.float32).div(1000.0).clamp_min(t_eps))
    velocity = (predicted[0] - z) / sigma
    if len(predicted) > 1:
        unconditional = (predicted[1] - z) / sigma
        velocity = unconditional + guidance * (velocity - unconditional)
    return -velocity
