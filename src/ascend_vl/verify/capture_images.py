"""Pictures of a case as every side must see them: normalised once, hashed, kept beside the answers."""

import hashlib
from pathlib import Path
from typing import Any

from ascend_vl.images import load_image
from ascend_vl.verify.cases import Case


def normalised(path: Path) -> Any:
    """The picture as PIL RGB, by the package's one rule. Raises ImageRefused."""
    return load_image(path)


def image_hash(picture: Any) -> str:
    """SHA-256 over width, height and RGB bytes of a normalised picture, in hex."""
    digest = hashlib.sha256(f"{picture.width}x{picture.height}:".encode())
    digest.update(picture.tobytes())
    return digest.hexdigest()


def save_images(cases: list[Case], out: Path) -> dict[str, list[str]]:
    """Write each normalised picture as PNG under out/images; the hashes of each case's pictures.

    A picture used twice is written once; its name begins with its hash.
    """
    (out / "images").mkdir(parents=True, exist_ok=True)
    hashes: dict[str, list[str]] = {}
    for case in cases:
        hashes[case.id] = []
        for path in case.images:
            picture = normalised(path)
            digest = image_hash(picture)
            target = out / "images" / f"{digest[:16]}.png"
            if not target.exists():
                picture.save(target)
            hashes[case.id].append(digest)
    return hashes
