"""The product section: a picture, the name, price and description of a product, and a link."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from appliance.content.designs.kind import Kind, View, group, image, line, rich, url

FIELDS = (
    line("name", "Name", "Product", aliases=("title",)),
    line("price", "Price"),
    line("old_price", "Price before"),
    image("image_url", "Picture", aliases=("src", "image")),
    url("href", "Link", aliases=("url", "link")),
    rich("description", "Description", aliases=("text",)),
    group(
        "button",
        "Button",
        (
            line("text", "Text", aliases=("label",), wording="label"),
            url("href", "Link", aliases=("url",)),
        ),
    ),
)


def to_text(view: View, product: SimpleNamespace) -> str:
    """Return a product as plain text: name and prices, description, and the link of the button, else of the product."""
    price = product.price or ""
    if product.old_price:
        price = f"{price} (was {product.old_price})".strip()
    href = product.button.href if product.button and product.button.href else product.href
    parts = [f"{product.name}: {price}" if price else product.name, view.plain_text(product.description), href]
    return "\n".join(part for part in parts if part)


def advise_product(product: Any) -> Iterator[tuple[str, str]]:
    """Advise about a missing picture and a button without a link."""
    if not product.image_url:
        yield "image_missing", f"the product {product.name[:60]!r} has no picture"
    if product.button and product.button.text and not (product.button.href or product.href):
        yield "link_missing", "a button leads nowhere"


def text(view: View) -> str:
    """Return the section as plain text (see `to_text`)."""
    return to_text(view, view.props)


KIND = Kind(
    "product", "Product", "shopping-bag", FIELDS, text, is_in_columns=True, padding=(20, 32, 20, 32),
    advise=lambda view: advise_product(view.props), matches=lambda props: "price" in props,
    initial_props={"name": "A product", "price": "€ 20"},
)  # fmt: skip
