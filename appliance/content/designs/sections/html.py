"""HTML of the author's own, cleaned by allow-list; for what no other kind can do."""

from appliance.content.designs import cleaning
from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import Prop
from appliance.content.designs.props import text as words


def fragment(view: View) -> str:
    """Return the HTML without anything that runs, asks or frames."""
    return cleaning.fragment(view.p.html or "")


def text(view: View) -> str:
    """Write the text that was given for it, else what the HTML says."""
    return view.p.plain_text or view.plain(view.p.html)


KIND = Kind(
    "html", "HTML", "code",
    (
        Prop(name="html", kind="html", label="HTML", help="scripts, forms and frames are taken out",
             aliases=("content",)),
        words("plain_text", "The same as text", help="made from the HTML, where empty"),
    ),
    text, in_columns=True,
)  # fmt: skip
