"""The product section: a picture, the name, price and description of a product, and a link."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from appliance.content.designs.kind import Finding, Kind, View, group, image, line, rich, url
from appliance.core.i18n import gettext_noop

FIELDS = (
    line("name", gettext_noop("Name"), "Product", aliases=("title",)),
    line("price", gettext_noop("Price")),
    line("old_price", gettext_noop("Original price")),
    image("image_url", gettext_noop("Image"), aliases=("src", "image")),
    url("href", gettext_noop("Link"), aliases=("url", "link")),
    rich("description", gettext_noop("Description"), aliases=("text",)),
    group(
        "button",
        gettext_noop("Button"),
        (
            line("text", gettext_noop("Text"), aliases=("label",), wording="label"),
            url("href", gettext_noop("Link"), aliases=("url",)),
        ),
    ),
)


def to_text(view: View, product: SimpleNamespace) -> str:
    """Return a product as plain text: name and prices, description, and the link of the button, else of the product."""
    price = product.price or ""
    if product.old_price:
        price = view.texts["price"].format(price=price, old_price=product.old_price).strip()
    href = product.button.href if product.button and product.button.href else product.href
    parts = [f"{product.name}: {price}" if price else product.name, view.plain_text(product.description), href]
    return "\n".join(part for part in parts if part)


def advise_product(product: Any) -> Iterator[Finding]:
    """Advise about a missing picture and a button without a link."""
    if not product.image_url:
        text = gettext_noop("The product “%(name)s” has no image")
        yield Finding("image_missing", text, {"name": product.name[:60]})
    if product.button and product.button.text and not (product.button.href or product.href):
        yield Finding("link_missing", gettext_noop("A button has no link"))


def text(view: View) -> str:
    """Return the section as plain text (see `to_text`)."""
    return to_text(view, view.props)


KIND = Kind(
    "product", gettext_noop("Product"), "shopping-bag", FIELDS, text, is_in_columns=True, padding=(20, 32, 20, 32),
    advise=lambda view: advise_product(view.props), matches=lambda props: "price" in props,
    initial_props={"name": gettext_noop("Product name"), "price": gettext_noop("€20")},
)  # fmt: skip
