"""The social links section: icons that this service hosts, so that no picture is loaded from a third party.

A link to a site without an icon is a badge with its name. `packaging/social_icons.py` draws the icons.
"""

import re
from typing import NamedTuple

from appliance.content.designs import theme
from appliance.content.designs.kind import Kind, View, choice, items, line, number, url
from appliance.core.i18n import gettext_noop

# The shipped directory of the icons: `NAME.svg` and `NAME-STYLE.png`, in the styles colour, ink-dark, ink-light,
# outline-dark, outline-light.
ICONS = "appliance/content/designs/icons"


class Platform(NamedTuple):
    """A platform with an icon.

    A design that is rendered without `Look.icons_url` shows a badge with `letters` in `colour` instead.
    """

    letters: str
    colour: str
    name: str


# A link to any other site is shown by its name.
PLATFORMS = {name: Platform(*values) for name, values in {
    "facebook": ("f", "#1877f2", "Facebook"), "instagram": ("ig", "#c13584", "Instagram"),
    "x": ("X", "#14171a", "X"), "twitter": ("X", "#14171a", "X"), "linkedin": ("in", "#0a66c2", "LinkedIn"),
    "youtube": ("yt", "#d90000", "YouTube"), "tiktok": ("tt", "#14171a", "TikTok"),
    "pinterest": ("P", "#bd081c", "Pinterest"), "whatsapp": ("wa", "#11803b", "WhatsApp"),
    "telegram": ("tg", "#1b7fb5", "Telegram"), "mastodon": ("m", "#5b4bd6", "Mastodon"),
    "bluesky": ("bs", "#0a6ae0", "Bluesky"), "threads": ("@", "#14171a", "Threads"),
    "github": ("gh", "#24292f", "GitHub"), "xing": ("xi", "#006567", "XING"), "vimeo": ("v", "#11708f", "Vimeo"),
    "medium": ("M", "#14171a", "Medium"), "discord": ("d", "#5865f2", "Discord"), "reddit": ("r", "#c93a00", "Reddit"),
    "snapchat": ("sc", "#14171a", "Snapchat"), "spotify": ("sp", "#127a3b", "Spotify"),
    "email": ("@", "#4a5058", gettext_noop("Email")), "website": ("www", "#4a5058", gettext_noop("Website")),
}.items()}  # fmt: skip
# The former name of a platform, whose icon is that of its new name
_RENAMED = {"twitter": "x"}
# The platforms with an icon of their own, as the editor offers them
OFFERED = tuple(sorted(PLATFORMS.keys() - _RENAMED.keys()))
_HOST = re.compile(r"https?://(?:www\.|m\.)?([a-z0-9-]+)\.", re.IGNORECASE)
_SHORT = {"t": "telegram", "wa": "whatsapp", "youtu": "youtube", "fb": "facebook", "bsky": "bluesky"}


class Badge(NamedTuple):
    """A link shown as an icon or a badge; if `letters` is None, the badge shows the whole name.

    `icon` is the name of the icon, empty without one.
    """

    letters: str | None
    name: str
    href: str
    colour: str
    icon: str = ""


def badges(view: View) -> list[Badge]:
    """Return up to 12 badges for the links of the section, or else for the links of the brand."""
    links = [(link.platform or "", link.url) for link in view.props.links if link.url]
    return [_badge(name, href) for name, href in links or view.look.links if href][:12]


def find_platform(name: str) -> str | None:
    """Return the key in `PLATFORMS` of a platform with an icon, however its name is written; None for other names."""
    key = _simplify(name)
    return _RENAMED.get(key, key) if key in PLATFORMS else None


def _simplify(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _badge(name: str, href: str) -> Badge:
    key = _simplify(name)
    platform = PLATFORMS.get(key)
    if platform is None:
        host = _HOST.match(href)
        word = host[1].lower() if host else ""
        key = _SHORT.get(word, word) if not key or key in (word, f"{word}com") else key
        platform = PLATFORMS.get(key)
        name = name or word.capitalize() or "Link"
    if platform is None:
        return Badge(None, name[:40], href, "#4a5058")
    return Badge(platform.letters, platform.name, href, platform.colour, _RENAMED.get(key, key))


def icon_urls(view: View, badge: Badge) -> tuple[str, str]:
    """Return (address of a badge's icon, address of its icon for dark mode), both empty for a badge without an icon.

    The second address is empty if the first icon is used in dark mode too. This is so for the style `colour`, whose
    icons fit all backgrounds, for light text, and for a section with its own background.
    """
    if not badge.icon or not view.look.icons_url:
        return "", ""
    address, style = f"{view.look.icons_url}/{badge.icon}", view.props.style
    if style == "colour":
        return f"{address}-colour.png", ""
    if theme.luminance(view.text_colour) > 0.4:
        return f"{address}-{style}-light.png", ""
    return f"{address}-{style}-dark.png", f"{address}-{style}-light.png" if view.background is None else ""


def badge_colours(view: View, badge: Badge) -> tuple[str, str, str, str]:
    """Return the colours of a badge: (CSS class for dark mode, background colour, border, text colour).

    The border is a CSS declaration. The class, the background and the border are empty strings if the badge has none.
    """
    plain = view.background is None
    if view.props.style == "outline":
        return ("c-ring" if plain else ""), "", f"border:1px solid {view.muted_colour}", view.text_colour
    if view.props.style == "ink":
        return ("c-ink" if plain else ""), view.text_colour, "", theme.readable_colour(view.text_colour)
    # In dark mode a nearly black badge would be invisible, so its class changes its colour.
    dark = plain and theme.luminance(badge.colour) < 0.03
    return ("c-ink" if dark else ""), badge.colour, "", "#ffffff"


def text(view: View) -> str:
    """Return the section as plain text: for each link, a line with its name and address."""
    return "\n".join(f"{badge.name}: {badge.href}" for badge in badges(view))


KIND = Kind(
    "social", gettext_noop("Social"), "share-2",
    (
        items("links", gettext_noop("Links"), (
            # A text, because a link to any other site has a name of its own; the editor offers the platforms.
            line(
                "platform", gettext_noop("Platform"), aliases=("name", "title", "icon"), is_translatable=False,
                options=OFFERED,
            ),
            url("url", gettext_noop("Link"), aliases=("href",)),
        ), maximum=12, help=gettext_noop("Leave empty to use the links of your brand.")),
        choice("style", gettext_noop("Style"), "colour", "ink", "outline"),
        number("size", gettext_noop("Size"), 24, 16, 48),
    ),
    text, is_in_columns=True, padding=(16, 32, 16, 32),
    matches=lambda props: "links" in props,
)  # fmt: skip
