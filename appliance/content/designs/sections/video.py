"""The video section: a still picture that links to a video on another site; the video itself is not loaded."""

from collections.abc import Iterator

from appliance.content.designs.kind import Kind, View, flag, image, line, url


def text(view: View) -> str:
    """Return the section as plain text: the caption, or else "Video", and the link."""
    return f"[{view.props.caption or 'Video'}]\n{view.props.href or '#'}"


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about a missing link, and a missing still picture or caption."""
    if not view.props.href:
        yield "link_missing", "a video has no address"
    if not view.props.thumbnail:
        yield "image_missing", "a video has no picture"
    elif not view.props.caption:
        yield "alt_missing", "a video has no words for those who do not see it"


KIND = Kind(
    "video", "Video", "square-play",
    (
        url("href", "Link", aliases=("url", "video_url")),
        image("thumbnail", "Picture", aliases=("thumbnail_url", "image_url", "src")),
        flag("play_badge", "Show that it plays", True),
        line("caption", "Words below", aliases=("title",)),
    ),
    text, is_in_columns=True, padding=(12, 32, 12, 32), advise=advise,
    matches=lambda props: "thumbnail" in props,
)  # fmt: skip
