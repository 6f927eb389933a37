"""A film elsewhere: its still, and a bar that says it plays. Nothing of it is fetched."""

from collections.abc import Iterator

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import flag, image, line, url


def text(view: View) -> str:
    """Write what the film is, and where it plays."""
    return f"[{view.p.caption or 'Video'}]\n{view.p.href or '#'}"


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about a film without an address or a still."""
    if not view.p.href:
        yield "link_missing", "a video has no address"
    if not view.p.thumbnail:
        yield "image_missing", "a video has no picture"
    elif not view.p.caption:
        yield "alt_missing", "a video has no words for those who do not see it"


KIND = Kind(
    "video", "Video", "video",
    (
        url("href", "Link", aliases=("url", "video_url")),
        image("thumbnail", "Picture", aliases=("thumbnail_url", "image_url", "src")),
        flag("play_badge", "Show that it plays", True),
        line("caption", "Words below", aliases=("title",)),
    ),
    text, in_columns=True, padding=(12, 32, 12, 32), advise=advise,
    inferred=lambda props: "thumbnail" in props,
)  # fmt: skip
