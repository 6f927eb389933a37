"""Uploaded pictures are encoded again: what is shown stays, metadata and other content is removed (T04)."""

import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageCms, ImageSequence, PngImagePlugin

from appliance.content.picture_worker import MAX_WIDTH, convert
from appliance.content.pictures import MAX_PIXELS, UnusablePicture
from tests.kit.pictures import HOSTILE_NAMES, SCRIPT, animation, decode_image, encode_image, hostile_file, photo, png


def mean_difference(first: Image.Image, second: Image.Image) -> float:
    """Return the mean difference of two pictures of the same size, 0 to 255."""
    difference = ImageChops.difference(first.convert("RGB"), second.convert("RGB")).convert("L")
    histogram = difference.histogram()
    return sum(value * count for value, count in enumerate(histogram)) / (first.width * first.height)


def reduce_colours(picture: Image.Image) -> Image.Image:
    """Return the picture with a palette of 64 colours."""
    return picture.quantize(64, Image.Quantize.FASTOCTREE)


def read_frames(content: bytes) -> list[tuple[bytes, int]]:
    """Return (RGBA bytes, duration in ms) of each frame of an animation."""
    return [
        (frame.convert("RGBA").tobytes(), int(frame.info.get("duration", 0)))
        for frame in ImageSequence.Iterator(decode_image(content))
    ]


def test_a_jpeg_loses_its_metadata() -> None:
    """Exif data, comments and trailing bytes are removed; the picture is the same and progressive."""
    exif = Image.Exif()
    exif[0x010F], exif[0x8825] = "Camera" + SCRIPT.decode(), {1: "N", 2: (51.0, 22.0, 0.0)}
    source = encode_image(photo(), "JPEG", quality=92, exif=exif, comment=SCRIPT) + SCRIPT
    converted = convert(source)

    assert (converted.content_type, converted.width, converted.height) == ("image/jpeg", 640, 400)
    assert (
        b"script" not in converted.content and b"Exif" not in converted.content and b"Camera" not in converted.content
    )
    assert decode_image(converted.content).info.get("progressive")
    assert mean_difference(decode_image(converted.content), photo()) < 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    """With each orientation the red corner ends up at the top left and the sides are right."""
    transforms: dict[int, Callable[[Image.Image], Image.Image]] = {
        1: lambda p: p,
        2: lambda p: p.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: lambda p: p.transpose(Image.Transpose.ROTATE_180),
        4: lambda p: p.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: lambda p: p.transpose(Image.Transpose.TRANSPOSE),
        6: lambda p: p.transpose(Image.Transpose.ROTATE_90),
        7: lambda p: p.transpose(Image.Transpose.TRANSVERSE),
        8: lambda p: p.transpose(Image.Transpose.ROTATE_270),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    converted = convert(encode_image(transforms[orientation](photo(2000, 500)), "JPEG", exif=exif))

    assert (converted.width, converted.height) == (MAX_WIDTH, 360)
    pixel = decode_image(converted.content).convert("RGB").getpixel((20, 20))
    assert isinstance(pixel, tuple)
    red, green, blue = pixel
    assert red > 200 and green < 60 and blue < 60


def test_a_png_keeps_transparency_and_loses_text() -> None:
    """Transparency of either kind is unchanged in every pixel; text chunks are removed."""
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", SCRIPT.decode())
    transparent = photo().convert("RGBA")
    transparent.putalpha(Image.linear_gradient("L").resize(transparent.size))
    paletted = photo().quantize(16)
    for picture, options in ((transparent, {}), (paletted, {"transparency": 3}), (photo().convert("L"), {})):
        converted = convert(encode_image(picture, "PNG", pnginfo=info, **options) + SCRIPT)

        assert (converted.content_type, converted.width, converted.height) == ("image/png", 640, 400)
        assert b"script" not in converted.content and b"tEXt" not in converted.content
        before, after = decode_image(encode_image(picture, "PNG", **options)), decode_image(converted.content)
        assert (after.mode, after.convert("RGBA").tobytes()) == (before.mode, before.convert("RGBA").tobytes())


def test_wide_pictures_are_scaled() -> None:
    """Pictures wider than `MAX_WIDTH` are scaled and keep transparency and palette, unless `full_size` is set."""
    wide = photo(1760, 1100).crop((0, 0, 1760, 220))
    transparent = wide.convert("RGBA")
    transparent.putalpha(Image.linear_gradient("L").resize(transparent.size))
    for picture, max_difference in ((wide, 0.01), (transparent, 0.01), (reduce_colours(wide), 3)):
        converted = decode_image(convert(encode_image(picture, "PNG")).content)
        assert converted.size == (MAX_WIDTH, 180)
        expected = picture.convert(picture.mode.replace("P", "RGB")).resize(converted.size, Image.Resampling.LANCZOS)
        assert mean_difference(converted, expected) < max_difference
    assert converted.mode == "P"
    assert decode_image(convert(encode_image(wide, "PNG"), full_size=True).content).size == (1760, 220)


def test_webp_is_converted() -> None:
    """Lossy WebP becomes JPEG, lossless or transparent becomes PNG; animated WebP and PNG are rejected."""
    transparent = photo().convert("RGBA")
    transparent.putalpha(128)
    assert convert(encode_image(photo(), "WEBP", quality=90)).content_type == "image/jpeg"
    assert convert(encode_image(photo(), "WEBP", lossless=True)).content_type == "image/png"
    assert decode_image(convert(encode_image(transparent, "WEBP", quality=90)).content).mode == "RGBA"
    for kind in ("WEBP", "PNG"):
        with pytest.raises(UnusablePicture, match="only in a GIF"):
            convert(encode_image(photo(), kind, save_all=True, append_images=[photo(seed=2)]))


@pytest.mark.parametrize("disposal", [0, 1, 2])
def test_animations_are_unchanged(disposal: int) -> None:
    """Each frame, delay and loop of a GIF stays the same; comments are removed."""
    source = animation(12, disposal=disposal, comment=SCRIPT, transparency=0)
    converted = convert(source)

    assert (converted.content_type, converted.width, converted.height) == ("image/gif", 120, 80)
    assert read_frames(converted.content) == read_frames(source) and len(read_frames(converted.content)) == 12
    assert decode_image(converted.content).info["loop"] == 0 and b"script" not in converted.content


def test_a_gif_keeps_the_colours_of_each_frame() -> None:
    """Frames with their own palettes are unchanged; a wide GIF of one frame becomes PNG."""
    pictures = [photo(200, 120, seed).quantize(256) for seed in range(4)]
    source = encode_image(
        pictures[0], "GIF", save_all=True, append_images=pictures[1:], duration=[20, 40, 60, 80], loop=3
    )
    converted = convert(source)

    assert read_frames(converted.content) == read_frames(source)
    assert decode_image(converted.content).info["loop"] == 3
    assert convert(encode_image(reduce_colours(photo(1760, 220)), "GIF")).content_type == "image/png"


def test_animations_are_limited() -> None:
    """The number of frames and the sum of their pixels are checked before decoding."""
    frame = animation(1, 1, 1)
    head, body = frame[: 13 + 12], frame[frame.index(b",") : -1]
    with pytest.raises(UnusablePicture, match="too many frames"):
        convert(head + body * 100_000 + b";")
    wide = animation(1, 5_000, 4_000)
    start = wide.index(b",")
    with pytest.raises(UnusablePicture, match="in all its frames"):
        convert(wide[:start] + wide[start:-1] * 3 + b";")


def test_colour_profiles_are_applied_and_removed() -> None:
    """A colour profile is applied and removed; an invalid one is only removed."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert (
        mean_difference(decode_image(convert(encode_image(photo(), "JPEG", icc_profile=profile)).content), photo()) < 4
    )
    converted = convert(encode_image(photo(), "PNG", icc_profile=b"nonsense"))
    assert decode_image(converted.content).tobytes() == photo().tobytes() and b"iCCP" not in converted.content


def test_16_bit_grey_and_cmyk_are_converted() -> None:
    """Grey of 16 bits is scaled to 8, and CMYK becomes RGB."""
    grey = Image.new("I;16", (4, 4), 0x8000)
    assert decode_image(convert(encode_image(grey, "PNG")).content).convert("L").getpixel((1, 1)) == 128
    converted = convert(encode_image(photo().convert("CMYK"), "JPEG", quality=92))
    assert decode_image(converted.content).mode == "RGB"
    assert mean_difference(decode_image(converted.content), photo()) < 5


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_files_that_are_not_pictures_are_rejected(name: str) -> None:
    """Each hostile file raises UnusablePicture with a readable reason."""
    with pytest.raises(UnusablePicture) as error_info:
        convert(hostile_file(name))
    assert str(error_info.value).split()[0] in ("is", "has")


def test_the_number_of_pixels_is_limited() -> None:
    """A picture of `MAX_PIXELS` is accepted, one more row is rejected."""
    pixels = zlib.compress(b"\0" * (5_001 * 5_000))
    assert convert(png(5_000, 5_000, pixels)).width == MAX_WIDTH
    with pytest.raises(UnusablePicture, match=f"{MAX_PIXELS:,}"):
        convert(png(5_000, 5_001, pixels))


_SEEDS = [
    encode_image(photo(60, 40), "PNG"), encode_image(photo(60, 40), "JPEG"), animation(3, 30, 20),
    encode_image(photo(60, 40), "WEBP"),
    encode_image(photo(60, 40), "WEBP", lossless=True), encode_image(photo(60, 40).quantize(8), "PNG", transparency=1),
]  # fmt: skip


@given(st.sampled_from(_SEEDS), st.lists(st.tuples(st.integers(0, 4_000), st.binary(max_size=6)), max_size=8),
       st.integers(0, 4_000))  # fmt: skip
def test_damaged_files_are_converted_or_rejected(seed: bytes, hits: list[tuple[int, bytes]], end: int) -> None:
    """A damaged file becomes a readable picture or raises UnusablePicture."""
    damaged = bytearray(seed[: len(seed) - end % 50])
    for offset, replacement in hits:
        damaged[12 + offset % len(damaged) : 12 + offset % len(damaged) + len(replacement)] = replacement
    try:
        converted = convert(bytes(damaged))
    except UnusablePicture:
        return
    assert decode_image(converted.content).size == (converted.width, converted.height)
