"""A build backend that only hands out the metadata a source distribution already carries, so that pip can download it.

pip asks the backend for metadata before it saves an archive; vllm-ascend's own backend would need CANN for that.
"""

import email
import pathlib


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    """Nothing is needed to read a file."""
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: object = None) -> str:
    """Write `<name>-<version>.dist-info` from the archive's PKG-INFO; its name."""
    text = pathlib.Path("PKG-INFO").read_text(encoding="utf-8")
    fields = email.message_from_string(text)
    folder = pathlib.Path(metadata_directory) / f"{fields['Name'].replace('-', '_')}-{fields['Version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(text, encoding="utf-8")
    return folder.name
