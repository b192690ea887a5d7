"""vLLM's media connector with our reading of pictures; chosen by VLLM_MEDIA_CONNECTOR=ascend_vl (vLLM 0.18 and later).

How pictures are fetched (URL rules, limits, local files) stays vLLM's; how bytes become pixels is `ascend_vl.images`.
Version 0.11 has no such connector: there vLLM's own decoding stands (no EXIF turning, transparency in grey over black).
"""

import asyncio
from pathlib import Path
from typing import Any

from vllm.multimodal.media.connector import MEDIA_CONNECTOR_REGISTRY, MediaConnector
from vllm.multimodal.media.image import ImageMediaIO

from ascend_vl import images
from ascend_vl.language import Text
from ascend_vl.models import names


class NormalisedImageIO(ImageMediaIO):
    """Bytes -> PIL RGB by our rules. The plain picture is returned, so that vLLM's cache key covers its pixels."""

    def load_bytes(self, data: bytes) -> Any:
        return images.decode(data)

    def load_base64(self, media_type: str, data: str) -> Any:
        return images.load_image(f"data:{media_type};base64,{data}")

    def load_file(self, filepath: Path) -> Any:
        return images.decode(filepath.read_bytes())


class AscendVLMediaConnector(MediaConnector):
    """Pictures through NormalisedImageIO; whatever cannot be fetched is refused without naming our paths."""

    def load_from_url(self, url: str, media_io: Any, **named: Any) -> Any:
        if not isinstance(media_io, ImageMediaIO):
            return super().load_from_url(url, media_io, **named)
        if is_data_url(url):
            return images.load_image(url)
        try:
            return super().load_from_url(url, NormalisedImageIO(), **named)
        except Exception as error:
            raise _refusal(url, error) from None

    async def load_from_url_async(self, url: str, media_io: Any, **named: Any) -> Any:
        if not isinstance(media_io, ImageMediaIO):
            return await super().load_from_url_async(url, media_io, **named)
        if is_data_url(url):
            return await asyncio.to_thread(images.load_image, url)
        try:
            return await super().load_from_url_async(url, NormalisedImageIO(), **named)
        except Exception as error:
            raise _refusal(url, error) from None


def is_data_url(url: str) -> bool:
    """Whether the picture is in the URL itself."""
    return url[:5].lower() == "data:"


def _refusal(url: str, error: Exception) -> Exception:
    """The error for the client; its own URL may appear in it, nothing of this machine."""
    if isinstance(error, images.ImageRefused):
        return error
    scheme, _, rest = url.partition(":")
    status = getattr(error, "status", None)
    if scheme.lower() in ("http", "https") and not rest.strip("/"):
        why = Text("The address names no host.", "网址中没有主机名。")
    elif isinstance(status, int):
        why = Text(f"Fetching it failed (HTTP {status}).", f"获取失败（HTTP {status}）。")
    elif scheme.lower() == "file" or not isinstance(error, (ValueError, NotImplementedError, RuntimeError, OSError)):
        why = Text("It is outside what this server may read.", "该文件不在服务允许读取的范围内。")
    else:
        why = Text(f"Fetching it failed ({type(error).__name__}).", f"获取失败（{type(error).__name__}）。")
    return images.ImageRefused(
        "image-not-fetched",
        Text("The picture could not be fetched.", "无法获取该图片。"),
        why,
        Text("Send it as a data: URL.", "请以 data: URL 发送。"),
    )


def register() -> None:
    """Make the connector known to vLLM under our name."""
    MEDIA_CONNECTOR_REGISTRY.register(names.MEDIA_CONNECTOR)(AscendVLMediaConnector)
