"""The video section: a still picture that links to a video on another site; the video itself is not loaded."""

from collections.abc import Iterator

from appliance.content.designs.kind import Finding, Kind, View, flag, image, line, url
from appliance.core.i18n import gettext_noop


def text(view: View) -> str:
    """Return the section as plain text: the caption, or else "Video" in the language of the email, and the link."""
    return f"[{view.props.caption or view.texts['video']}]\n{view.props.href or '#'}"


def advise(view: View) -> Iterator[Finding]:
    """Advise about a missing link, and a missing still picture or caption."""
    if not view.props.href:
        yield Finding("link_missing", gettext_noop("A video has no link"))
    if not view.props.thumbnail:
        yield Finding("image_missing", gettext_noop("A video has no thumbnail"))
    elif not view.props.caption:
        yield Finding("alt_missing", gettext_noop("A video has no caption, which is also the alt text"))


KIND = Kind(
    "video", gettext_noop("Video"), "square-play",
    (
        url("href", gettext_noop("Link"), aliases=("url", "video_url")),
        image("thumbnail", gettext_noop("Thumbnail"), aliases=("thumbnail_url", "image_url", "src")),
        flag("play_badge", gettext_noop("Show play button"), True),
        line("caption", gettext_noop("Caption"), aliases=("title",)),
    ),
    text, is_in_columns=True, padding=(12, 32, 12, 32), advise=advise,
    matches=lambda props: "thumbnail" in props,
)  # fmt: skip
