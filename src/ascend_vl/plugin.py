"""The vLLM entry points, and nothing else.

vLLM calls `register` in every process: API server, engine core, workers, and the child that inspects model classes.
Here names are registered and later imports are watched for; nothing heavy is imported.
"""

import logging

from ascend_vl.adaptations.override import switched_off
from ascend_vl.models import names

# Below vLLM's own logger, so that its handlers and level apply.
logger = logging.getLogger("vllm.plugins.ascend_vl")

_registered = False


def active() -> bool:
    """Whether `register` has run to its end in this process."""
    return _registered


def register() -> None:
    """Entry point of group `vllm.general_plugins`; may be called more than once."""
    global _registered
    if _registered or switched_off():
        return
    from vllm import ModelRegistry

    from ascend_vl.serve import imports, routes

    for architecture, path in names.CLASSES.items():
        ModelRegistry.register_model(architecture, path)
    routes.install()
    imports.when_imported("vllm.multimodal.media.connector", _register_media_connector)
    _warn_of_unknown_stack()
    _registered = True


def _register_media_connector(module: object) -> None:
    from ascend_vl.serve import media_connector

    media_connector.register()


def _warn_of_unknown_stack() -> None:
    from importlib import metadata

    from ascend_vl.adaptations.decide import KNOWN_STACKS, release

    try:
        version = metadata.version("vllm-ascend")
    except metadata.PackageNotFoundError:
        return
    if release(version) not in KNOWN_STACKS:
        logger.warning(
            "ascend_vl: vllm-ascend %s is not known to this package (known: %s); it is served without adaptations",
            version,
            ", ".join(KNOWN_STACKS),
        )
