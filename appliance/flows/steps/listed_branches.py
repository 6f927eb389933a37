"""Parsing of `branches`: the list of branches of a step, each with a key, props of its kind, and steps."""

from collections.abc import Callable, Iterator
from typing import Any

from appliance.core.i18n import gettext
from appliance.flows.branches import LISTED_KEY, STEPS_KEY
from appliance.flows.steps.base import ParseContext

_MAX_KEY_CHARACTERS = 100

# Returns the stored props of an item; errors are added at a path below `context`, which is that of the item.
ItemReader = Callable[[dict[str, Any], ParseContext], dict[str, Any]]


def read_branches(
    value: Any, context: ParseContext, keys: frozenset[str], read_item: ItemReader, sizes: range
) -> list[dict[str, Any]]:
    """Parse `branches` of a request and return the stored items, without their steps; add every error to `context`.

    `keys` are the props of an item, and `sizes` the allowed numbers of items. A branch with the `key` of a branch of
    the stored step keeps it, and all others get new keys, because a key is never given twice in a flow.
    """
    if value is None:
        value = []
    if not isinstance(value, list):
        context.add_fault(LISTED_KEY, gettext("is invalid"))
        return []
    if len(value) not in sizes:
        error = gettext("must have between %(min)s and %(max)s items", min=sizes[0], max=sizes[-1])
        context.add_fault(LISTED_KEY, error)
    free_keys = {item["key"] for item in (context.previous or {}).get(LISTED_KEY, ())}
    return [item for item in _read_items(value, context, keys, read_item, free_keys) if item is not None]


def _read_items(
    items: list[Any], context: ParseContext, keys: frozenset[str], read_item: ItemReader, free_keys: set[str]
) -> Iterator[dict[str, Any] | None]:
    for index, item in enumerate(items):
        path = f"{LISTED_KEY}[{index}]"
        if not isinstance(item, dict):
            context.add_fault(path, gettext("is invalid"))
            continue
        for name in item.keys() - keys - {"key", STEPS_KEY}:
            printable = name.encode("utf-8", "replace").decode().replace("\x00", "?")[:_MAX_KEY_CHARACTERS]
            context.add_fault(f"{path}.{printable}", gettext("is not a known field"))
        key = item.get("key")
        if key is not None and not isinstance(key, str):
            context.add_fault(f"{path}.key", gettext("is invalid"))
        if isinstance(key, str) and key in free_keys:
            free_keys.discard(key)
        else:
            key = f"b{context.new_id()}"
        yield {"key": key, **read_item(item, context.at(path))}
