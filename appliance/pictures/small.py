"""Pictures small enough to look through: what pages of ours show of them, never what mails show."""

from io import BytesIO

_QUALITY = 72


def small(content: bytes, side: int) -> bytes:
    """Return a picture of ours as a WebP that is at most so many pixels wide and high; of one that moves, its start."""
    from PIL import Image

    with Image.open(BytesIO(content)) as opened:
        opened.draft("RGB", (side, side))
        made = opened.convert("RGBA" if opened.has_transparency_data else "RGB")
    made.thumbnail((side, side))
    packed = BytesIO()
    made.save(packed, "WEBP", quality=_QUALITY)
    return packed.getvalue()
