"""A thing for sale: picture, name, price, and where to get it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import group, image, line, rich, url

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


def lines(view: View, product: SimpleNamespace) -> str:
    """Write a thing for sale: name and price, what it is, where it is."""
    price = product.price or ""
    if product.old_price:
        price = f"{price} (was {product.old_price})".strip()
    href = product.button.href if product.button and product.button.href else product.href
    parts = [f"{product.name}: {price}" if price else product.name, view.plain(product.description), href]
    return "\n".join(part for part in parts if part)


def faults(product: Any) -> Iterator[tuple[str, str]]:
    """Advise about a picture that is not there, and a button that leads nowhere."""
    if not product.image_url:
        yield "image_missing", f"the product {product.name[:60]!r} has no picture"
    if product.button and product.button.text and not (product.button.href or product.href):
        yield "link_missing", "a button leads nowhere"


def text(view: View) -> str:
    """Write the product on a few lines."""
    return lines(view, view.p)


KIND = Kind(
    "product", "Product", "product", FIELDS, text, in_columns=True, padding=(20, 32, 20, 32),
    advise=lambda view: faults(view.p), inferred=lambda props: "price" in props,
)  # fmt: skip
