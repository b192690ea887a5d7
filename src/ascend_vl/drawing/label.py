"""Pictures as files, labelled as generated: always in the file's metadata, on request also visibly.

The metadata says so twice: the IPTC digital source type, and the `AIGC` record of the Chinese national standard GB
45438-2025. The prompt is not in it.
"""

import io
import json
from typing import Literal

from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from ascend_vl import __version__
from ascend_vl.drawing.pixels import Pixels

Format = Literal["png", "jpeg", "webp"]

SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
DESCRIPTION = "AI-generated picture"
VISIBLE = "AI generated"
# Of the shorter side, the height of the visible label; the standard asks for 5 % at least.
VISIBLE_SHARE = 0.05
_SOFTWARE, _DESCRIPTION, _EXIF, _COMMENT = 0x0131, 0x010E, 0x8769, 0x9286


def aigc_record(drawing: str) -> str:
    """The implicit label as JSON; `drawing` identifies this picture."""
    record = {"Label": "1", "ContentProducer": f"ascend-vl {__version__}", "ProduceID": drawing}
    return json.dumps({"AIGC": record}, ensure_ascii=False)


def encode(pixels: Pixels, fmt: Format, drawing: str, compression: int = 100, visible: bool = False) -> bytes:
    """The file of a picture (H, W, 3) uint8. `compression`: quality 0..100 of jpeg and webp (webp 100: lossless)."""
    picture = Image.fromarray(pixels)
    if visible:
        picture = with_visible_label(picture)
    out = io.BytesIO()
    if fmt == "png":
        info = PngInfo()
        info.add_text("Software", f"ascend-vl {__version__}")
        info.add_text("Description", DESCRIPTION)
        info.add_text("AIGC", aigc_record(drawing))
        info.add_itxt("XML:com.adobe.xmp", _xmp())
        picture.save(out, "PNG", pnginfo=info)
    elif fmt == "jpeg":
        picture.save(out, "JPEG", quality=max(1, compression), exif=_exif(drawing))
    else:
        picture.save(out, "WEBP", quality=compression, lossless=compression == 100, exif=_exif(drawing))
    return out.getvalue()


def _exif(drawing: str) -> bytes:
    exif = Image.Exif()
    exif[_SOFTWARE] = f"ascend-vl {__version__}"
    exif[_DESCRIPTION] = f"{DESCRIPTION}; {SOURCE_TYPE}"
    exif.get_ifd(_EXIF)[_COMMENT] = b"ASCII\0\0\0" + aigc_record(drawing).encode("ascii")
    return exif.tobytes()


def _xmp() -> str:
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/" '
        f'Iptc4xmpExt:DigitalSourceType="{SOURCE_TYPE}"/></rdf:RDF></x:xmpmeta>'
    )


def with_visible_label(picture: Image.Image) -> Image.Image:
    """The picture with "AI generated" in its lower right corner, white on black."""
    font = ImageFont.load_default()
    left, top, right, bottom = (int(v) for v in ImageDraw.Draw(picture).textbbox((0, 0), VISIBLE, font=font))
    tag = Image.new("RGB", (right - left + 4, bottom - top + 4), (0, 0, 0))
    ImageDraw.Draw(tag).text((2 - left, 2 - top), VISIBLE, fill=(255, 255, 255), font=font)
    height = max(8, int(min(picture.size) * VISIBLE_SHARE) + 1)
    width = min(picture.width, round(tag.width * height / tag.height))
    tag = tag.resize((width, height), resample=Image.Resampling.BICUBIC)
    out = picture.copy()
    out.paste(tag, (picture.width - width, picture.height - height))
    return out
