"""The HTML section: sanitized HTML of the author, for content that no other kind can show."""

from appliance.content.designs import sanitizer
from appliance.content.designs.kind import Kind, Prop, View
from appliance.content.designs.kind import text as words


def fragment(view: View) -> str:
    """Return the author's HTML, sanitized."""
    return sanitizer.clean_fragment(view.props.html or "")


def text(view: View) -> str:
    """Return the author's plain text, or else the HTML as plain text."""
    return view.props.plain_text or view.plain_text(view.props.html)


KIND = Kind(
    "html", "HTML", "code",
    (
        Prop(name="html", kind="html", label="HTML", help="scripts, forms and frames are taken out",
             aliases=("content",)),
        words("plain_text", "The same as text", help="made from the HTML, where empty"),
    ),
    text, is_in_columns=True,
)  # fmt: skip
