"""Pictures are written anew: what is shown stays, what else stood in the file does not (T04)."""

import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageCms, ImageSequence, PngImagePlugin

from appliance.content.pictures.formats import MAX_PIXELS, UnusablePicture
from appliance.content.pictures.worker import MAX_WIDTH, convert
from tests.kit.pictures import SCRIPT, animation, hostile, opened, photo, png, saved


def likeness(one: Image.Image, other: Image.Image) -> float:
    """Return by how much two pictures of one size differ on average, 0 to 255."""
    apart = ImageChops.difference(one.convert("RGB"), other.convert("RGB")).convert("L")
    histogram = apart.histogram()
    return sum(value * count for value, count in enumerate(histogram)) / (one.width * one.height)


def few_coloured(picture: Image.Image) -> Image.Image:
    """Return a picture with a palette."""
    return picture.quantize(64, Image.Quantize.FASTOCTREE)


def frames(content: bytes) -> list[tuple[bytes, int]]:
    """Return every frame of an animation as it is shown, and for how long."""
    return [
        (frame.convert("RGBA").tobytes(), int(frame.info.get("duration", 0)))
        for frame in ImageSequence.Iterator(opened(content))
    ]


def test_a_jpeg_stays_a_jpeg_without_its_notes() -> None:
    """The camera's notes, a comment and what hangs behind the end are gone; the picture is the same."""
    notes = Image.Exif()
    notes[0x010F], notes[0x8825] = "Camera" + SCRIPT.decode(), {1: "N", 2: (51.0, 22.0, 0.0)}
    given_ = saved(photo(), "JPEG", quality=92, exif=notes, comment=SCRIPT) + SCRIPT
    made = convert(given_)

    assert (made.content_type, made.width, made.height) == ("image/jpeg", 640, 400)
    assert b"script" not in made.content and b"Exif" not in made.content and b"Camera" not in made.content
    assert opened(made.content).info.get("progressive")
    assert likeness(opened(made.content), photo()) < 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_stands_as_its_camera_was_held(orientation: int) -> None:
    """Every orientation ends with the red corner at the top left, and sides that are not swapped."""
    turns: dict[int, Callable[[Image.Image], Image.Image]] = {
        1: lambda p: p,
        2: lambda p: p.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: lambda p: p.transpose(Image.Transpose.ROTATE_180),
        4: lambda p: p.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: lambda p: p.transpose(Image.Transpose.TRANSPOSE),
        6: lambda p: p.transpose(Image.Transpose.ROTATE_90),
        7: lambda p: p.transpose(Image.Transpose.TRANSVERSE),
        8: lambda p: p.transpose(Image.Transpose.ROTATE_270),
    }
    notes = Image.Exif()
    notes[0x0112] = orientation
    made = convert(saved(turns[orientation](photo(2000, 1250)), "JPEG", exif=notes))

    assert (made.width, made.height) == (MAX_WIDTH, 900)
    pixel = opened(made.content).convert("RGB").getpixel((20, 20))
    assert isinstance(pixel, tuple)
    red, green, blue = pixel
    assert red > 200 and green < 60 and blue < 60


def test_a_png_keeps_its_clear_places_and_loses_its_texts() -> None:
    """Transparency of either kind stays to the pixel; texts and profiles do not."""
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Comment", SCRIPT.decode())
    clear = photo().convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    few = photo().quantize(16)
    for picture, more in ((clear, {}), (few, {"transparency": 3}), (photo().convert("L"), {})):
        made = convert(saved(picture, "PNG", pnginfo=notes, **more) + SCRIPT)

        assert (made.content_type, made.width, made.height) == ("image/png", 640, 400)
        assert b"script" not in made.content and b"tEXt" not in made.content
        before, after = opened(saved(picture, "PNG", **more)), opened(made.content)
        assert (after.mode, after.convert("RGBA").tobytes()) == (before.mode, before.convert("RGBA").tobytes())


def test_wide_pictures_are_scaled_and_stay_what_they_are() -> None:
    """Over twice the widest mail nothing is gained: scaled like the library scales all at once, clear places too."""
    wide = photo(1760, 1100)
    clear = wide.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    for picture, most in ((wide, 0.01), (clear, 0.01), (few_coloured(wide), 3)):
        made = opened(convert(saved(picture, "PNG")).content)
        assert made.size == (MAX_WIDTH, 900)
        whole = picture.convert(picture.mode.replace("P", "RGB")).resize(made.size, Image.Resampling.LANCZOS)
        assert likeness(made, whole) < most
    assert made.mode == "P"
    assert opened(convert(saved(wide, "PNG"), full_size=True).content).size == (1760, 1100)


def test_a_webp_becomes_what_every_mail_program_shows() -> None:
    """Lossy becomes JPEG, lossless and clear become PNG; one that moves is refused, for it would stand still."""
    clear = photo().convert("RGBA")
    clear.putalpha(128)
    assert convert(saved(photo(), "WEBP", quality=90)).content_type == "image/jpeg"
    assert convert(saved(photo(), "WEBP", lossless=True)).content_type == "image/png"
    assert opened(convert(saved(clear, "WEBP", quality=90)).content).mode == "RGBA"
    for kind in ("WEBP", "PNG"):
        with pytest.raises(UnusablePicture, match="save it as a GIF"):
            convert(saved(photo(), kind, save_all=True, append_images=[photo(seed=2)]))


@pytest.mark.parametrize("disposal", [0, 1, 2])
def test_an_animation_moves_as_before(disposal: int) -> None:
    """Every frame, delay and loop of a GIF stays to the pixel; comments do not."""
    given_ = animation(12, disposal=disposal, comment=SCRIPT, transparency=0)
    made = convert(given_)

    assert (made.content_type, made.width, made.height) == ("image/gif", 120, 80)
    assert frames(made.content) == frames(given_) and len(frames(made.content)) == 12
    assert opened(made.content).info["loop"] == 0 and b"script" not in made.content


def test_a_gif_of_many_colours_keeps_them_all() -> None:
    """Frames with colours of their own, interlaced ones too, are the same to the pixel."""
    pictures = [photo(200, 120, seed).quantize(256) for seed in range(4)]
    given_ = saved(pictures[0], "GIF", save_all=True, append_images=pictures[1:], duration=[20, 40, 60, 80], loop=3)
    made = convert(given_)

    assert frames(made.content) == frames(given_)
    assert opened(made.content).info["loop"] == 3
    assert convert(saved(few_coloured(photo(1760, 1100)), "GIF")).content_type == "image/png"


def test_an_animation_has_its_limits() -> None:
    """Frames are counted, and their pixels added, before any is decoded."""
    frame = animation(1, 1, 1)
    head, body = frame[: 13 + 12], frame[frame.index(b",") : -1]
    with pytest.raises(UnusablePicture, match="too many frames"):
        convert(head + body * 100_000 + b";")
    wide = animation(1, 5_000, 4_000)
    start = wide.index(b",")
    with pytest.raises(UnusablePicture, match="in all its frames"):
        convert(wide[:start] + wide[start:-1] * 3 + b";")


def test_colours_of_wider_screens_become_those_of_every_screen() -> None:
    """A profile is applied and left out; one that nobody can read is only left out."""
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert likeness(opened(convert(saved(photo(), "JPEG", icc_profile=lab)).content), photo()) < 4
    made = convert(saved(photo(), "PNG", icc_profile=b"nonsense"))
    assert opened(made.content).tobytes() == photo().tobytes() and b"iCCP" not in made.content


def test_grey_and_print_are_shown() -> None:
    """Sixteen bits of grey are scaled to eight; the four colours of a press become three."""
    deep = Image.new("I;16", (4, 4), 0x8000)
    assert opened(convert(saved(deep, "PNG")).content).convert("L").getpixel((1, 1)) == 128
    press = convert(saved(photo().convert("CMYK"), "JPEG", quality=92))
    assert opened(press.content).mode == "RGB"
    assert likeness(opened(press.content), photo()) < 5


@pytest.mark.parametrize("name", sorted(hostile()))
def test_what_is_no_picture_is_refused(name: str) -> None:
    """Every file of the corpus is refused in words, by nothing else."""
    with pytest.raises(UnusablePicture) as told:
        convert(hostile()[name])
    assert str(told.value).split()[0] in ("is", "has")


def test_as_many_pixels_as_are_allowed() -> None:
    """The limit itself is taken, one row more is not."""
    flat = zlib.compress(b"\0" * (5_001 * 5_000))
    assert convert(png(5_000, 5_000, flat)).width == MAX_WIDTH
    with pytest.raises(UnusablePicture, match=f"{MAX_PIXELS:,}"):
        convert(png(5_000, 5_001, flat))


_SEEDS = [
    saved(photo(60, 40), "PNG"), saved(photo(60, 40), "JPEG"), animation(3, 30, 20), saved(photo(60, 40), "WEBP"),
    saved(photo(60, 40), "WEBP", lossless=True), saved(photo(60, 40).quantize(8), "PNG", transparency=1),
]  # fmt: skip


@given(st.sampled_from(_SEEDS), st.lists(st.tuples(st.integers(0, 4_000), st.binary(max_size=6)), max_size=8),
       st.integers(0, 4_000))  # fmt: skip
def test_a_damaged_file_is_shown_or_refused(seed: bytes, hits: list[tuple[int, bytes]], end: int) -> None:
    """Whatever happened to a file on its way, it is a picture afterwards or is refused in words."""
    damaged = bytearray(seed[: len(seed) - end % 50])
    for place, by in hits:
        damaged[12 + place % len(damaged) : 12 + place % len(damaged) + len(by)] = by
    try:
        made = convert(bytes(damaged))
    except UnusablePicture:
        return
    assert opened(made.content).size == (made.width, made.height)
