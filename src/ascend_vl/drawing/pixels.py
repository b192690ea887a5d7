"""Pictures as rows of patches and back. A patch vector is (channel, row in patch, column in patch)."""

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Patches = NDArray[np.float32]


def to_patches(pixels: Pixels, patch: int) -> Patches:
    """(H, W, 3) uint8 to (H/patch * W/patch, 3 * patch * patch) float32 in [-1, 1], row-major."""
    height, width, channels = pixels.shape
    values = (pixels.astype(np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    cells = values.reshape(height // patch, patch, width // patch, patch, channels).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(cells.reshape(-1, channels * patch * patch))


def to_pixels(patches: Patches, width: int, height: int, patch: int) -> Pixels:
    """(N, 3 * patch * patch) float32, nominally in [-1, 1], to (H, W, 3) uint8, rounded half to even and clipped."""
    cells = ((patches.astype(np.float32) + np.float32(1)) / np.float32(2)).reshape(
        height // patch, width // patch, 3, patch, patch
    )
    values = cells.transpose(0, 3, 1, 4, 2).reshape(height, width, 3)
    return np.round(np.clip(values * np.float32(255), 0, 255)).astype(np.uint8)
