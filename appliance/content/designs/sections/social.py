"""Where else to meet: small badges drawn with letters, so that nothing is loaded from anybody."""

import re
from typing import NamedTuple

from appliance.content.designs import colours
from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import choice, items, line, number, url

# Letters and colour by platform; what is not here is shown by its name
_PLATFORMS = {
    "facebook": ("f", "#1877f2", "Facebook"), "instagram": ("ig", "#c13584", "Instagram"),
    "x": ("X", "#14171a", "X"), "twitter": ("X", "#14171a", "X"), "linkedin": ("in", "#0a66c2", "LinkedIn"),
    "youtube": ("yt", "#d90000", "YouTube"), "tiktok": ("tt", "#14171a", "TikTok"),
    "pinterest": ("P", "#bd081c", "Pinterest"), "whatsapp": ("wa", "#11803b", "WhatsApp"),
    "telegram": ("tg", "#1b7fb5", "Telegram"), "mastodon": ("m", "#5b4bd6", "Mastodon"),
    "bluesky": ("bs", "#0a6ae0", "Bluesky"), "threads": ("@", "#14171a", "Threads"),
    "github": ("gh", "#24292f", "GitHub"), "xing": ("xi", "#006567", "XING"), "vimeo": ("v", "#11708f", "Vimeo"),
    "medium": ("M", "#14171a", "Medium"), "discord": ("d", "#5865f2", "Discord"), "reddit": ("r", "#c93a00", "Reddit"),
    "snapchat": ("sc", "#14171a", "Snapchat"), "spotify": ("sp", "#127a3b", "Spotify"),
    "email": ("@", "#4a5058", "Email"), "website": ("www", "#4a5058", "Website"),
}  # fmt: skip
_HOST = re.compile(r"https?://(?:www\.|m\.)?([a-z0-9-]+)\.", re.IGNORECASE)
_SHORT = {"t": "telegram", "wa": "whatsapp", "youtu": "youtube", "fb": "facebook", "bsky": "bluesky"}


class Badge(NamedTuple):
    """A link as it is drawn: letters (None where the whole name stands), name, address, colour."""

    letters: str | None
    name: str
    href: str
    colour: str


def badges(view: View) -> list[Badge]:
    """Return the links of the section, else those of the brand."""
    own = [(one.platform or "", one.url) for one in view.p.links if one.url]
    return [_badge(name, href) for name, href in own or view.look.links if href][:12]


def _badge(name: str, href: str) -> Badge:
    key = re.sub(r"[^a-z]", "", name.lower())
    found = _PLATFORMS.get(key)
    if found is None:
        host = _HOST.match(href)
        word = host[1].lower() if host else ""
        found = _PLATFORMS.get(_SHORT.get(word, word)) if not key or key in (word, f"{word}com") else None
        name = name or word.capitalize() or "Link"
    if found is None:
        return Badge(None, name[:40], href, "#4a5058")
    return Badge(found[0], found[2], href, found[1])


def cell(view: View, badge: Badge) -> tuple[str, str, str, str]:
    """Return class, background, border and colour of the words of a badge."""
    plain = view.background is None
    if view.p.style == "outline":
        return ("c-ring" if plain else ""), "", f"border:1px solid {view.soft}", view.words
    if view.p.style == "ink":
        return ("c-ink" if plain else ""), view.words, "", colours.readable_on(view.words)
    # What is nearly black would be lost on a dark card
    dark = plain and colours.luminance(badge.colour) < 0.03
    return ("c-ink" if dark else ""), badge.colour, "", "#ffffff"


def text(view: View) -> str:
    """Write a line for each place."""
    return "\n".join(f"{one.name}: {one.href}" for one in badges(view))


KIND = Kind(
    "social", "Social links", "social",
    (
        items("links", "Links", (
            line("platform", "Platform", aliases=("name", "title", "icon")),
            url("url", "Link", aliases=("href",)),
        ), most=12, help="the brand's, where empty"),
        choice("style", "Style", "colour", "ink", "outline"),
        number("size", "Size", 24, 16, 48),
    ),
    text, in_columns=True, padding=(16, 32, 16, 32),
    inferred=lambda props: "links" in props,
)  # fmt: skip
