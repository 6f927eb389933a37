"""All kinds of sections, in the order in which their `matches` are tested for a section without a type.

docs/decisions.md#11 defines the order.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.content.designs.kind import Kind, Prop
from appliance.content.designs.sections import (
    button,
    columns,
    coupon,
    divider,
    footer,
    gallery,
    header,
    heading,
    hero,
    html,
    image,
    list,
    product,
    product_grid,
    quote,
    social,
    spacer,
    split,
    text,
    video,  # fmt: skip
)
from appliance.core.i18n import translate_stored

KINDS: tuple[Kind, ...] = (
    columns.KIND,
    footer.KIND,
    header.KIND,
    product_grid.KIND,
    gallery.KIND,
    list.KIND,
    coupon.KIND,
    product.KIND,
    text.KIND,
    split.KIND,
    hero.KIND,
    social.KIND,
    image.KIND,
    button.KIND,
    heading.KIND,
    quote.KIND,
    divider.KIND,
    spacer.KIND,
    video.KIND,
    html.KIND,
)
BY_NAME = {kind.name: kind for kind in KINDS}


def build_initial_props(kind: Kind) -> dict[str, Any]:
    """Return the `initial_props` of a kind with the texts in the current language."""
    return _translate_texts(kind.props, kind.initial_props)


def _translate_texts(props: Iterable[Prop], values: Mapping[str, Any]) -> dict[str, Any]:
    declared = {prop.name: prop for prop in props}
    return {name: _translate_value(declared[name], value) for name, value in values.items()}


def _translate_value(prop: Prop, value: Any) -> Any:
    if prop.kind == "sections":
        return [{**raw, "props": _translate_texts(BY_NAME[raw["type"]].props, raw["props"])} for raw in value]
    if prop.kind == "items":
        return [_translate_texts(prop.fields, entry) for entry in value]
    return translate_stored(value) if prop.is_text and prop.is_translatable else value
