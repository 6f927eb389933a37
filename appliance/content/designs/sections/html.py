"""The HTML section: sanitized HTML of the author, for content that no other kind can show."""

from appliance.content.designs import sanitizer
from appliance.content.designs.kind import Kind, Prop, View
from appliance.content.designs.kind import text as words
from appliance.core.i18n import gettext_noop


def fragment(view: View) -> str:
    """Return the author's HTML, sanitized."""
    return sanitizer.clean_fragment(view.props.html or "")


def text(view: View) -> str:
    """Return the author's plain text, or else the HTML as plain text."""
    return view.props.plain_text or view.plain_text(view.props.html)


KIND = Kind(
    "html", gettext_noop("HTML"), "code",
    (
        Prop(name="html", kind="html", label=gettext_noop("HTML"),
             help=gettext_noop("Scripts, forms and frames are removed."), aliases=("content",)),
        words("plain_text", gettext_noop("Plain-text version"),
              help=gettext_noop("Leave empty to create it from the HTML.")),
    ),
    text, is_in_columns=True,
)  # fmt: skip
