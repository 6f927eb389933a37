"""The opening of a mail: a picture, or words on one; readable where pictures are blocked."""

from collections.abc import Iterator

from appliance.content.designs import colours
from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import image, line, number, url
from appliance.content.designs.props import text as words

_UNSAFE = str.maketrans({"'": "%27", "(": "%28", ")": "%29", '"': "%22", "\\": "%5C", " ": "%20"})


def ground(view: View) -> str:
    """Return the colour behind the words while the picture is not there: the section's, else nearly black."""
    return view.background or "#1d2126"


def veil(view: View) -> str:
    """Return what lies between picture and words, so that they can be read: dark below light words, else light."""
    red, green, blue = colours.parts("#0e1013" if ink(view) == "#ffffff" else "#ffffff")
    return f"rgba({red},{green},{blue},{view.p.overlay / 100:g})"


def ink(view: View) -> str:
    """Return the colour of words on the picture."""
    return colours.readable_on(ground(view))


def address(view: View) -> str:
    """Return the address of the picture so that it ends nowhere within the CSS around it; none with merge tags."""
    found = view.p.background_url or ""
    return "" if view.tagged(found) else found.translate(_UNSAFE)


def text(view: View) -> str:
    """Write the title underlined, the words below it, and where it leads."""
    title = (view.p.title or "").strip()
    parts = [f"{title}\n{'=' * min(len(title), 40)}" if title else "", view.p.subtitle or ""]
    if view.p.cta_text:
        parts.append(f"{view.p.cta_text}:\n{view.p.cta_url or '#'}")
    return "\n\n".join(part for part in parts if part)


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about a button that leads nowhere, and words that only a picture would carry."""
    if view.p.cta_text and not view.p.cta_url:
        yield "link_missing", "a button leads nowhere"
    if view.p.background_url and not address(view):
        yield "section", "the address of a picture behind words can have no merge tags"
    if view.p.image_url and not view.p.title:
        yield "alt_missing", "the picture of an opening has no words for those who do not see it"


KIND = Kind(
    "hero", "Opening", "hero",
    (
        image("image_url", "Picture above", aliases=("src",)),
        image("background_url", "Picture behind"),
        line("title", "Title", aliases=("heading",), wording="title"),
        words("subtitle", "Words below"),
        line("cta_text", "Button", aliases=("button_text",), wording="label"),
        url("cta_url", "Link", aliases=("href", "button_url")),
        number("overlay", "Darken the picture", 40, 0, 80, unit="%"),
        number("height", "Height over a picture", 320, 80, 800),
    ),
    text, whole=True, padding=(40, 32, 40, 32), advise=advise,
    inferred=lambda props: bool({"title", "subtitle", "cta_text", "background_url"} & props.keys()),
)  # fmt: skip
