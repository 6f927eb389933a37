"""Where in HTML the result of a merge tag stands, and what it must be encoded for there.

Everywhere values are escaped. Within an address they are one part of it and cannot begin another; where an address
begins with one it must be an address that leads somewhere harmless; within styles they are a word. Logic is left alone.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from liquid.builtin.expressions import Filter, Path
from liquid.builtin.output import OutputNode
from liquid.builtin.tags.for_tag import ForNode

from appliance.designs import addressing, places
from appliance.designs.addressing import AddressFault, Said
from appliance.designs.language import AS_ADDRESS, AS_PART, AS_PICTURE, AS_QUERY, AS_STYLE

# Roots that speak of the recipient: they may say anything but where a link leads
OF_RECIPIENT = ("contact", "first_name", "last_name", "email")

_LINKS = ("href", "action", "formaction", "xlink:href")
_PICTURES = ("src", "background", "poster")
_URL = re.compile(r"url\s*\(\s*(?:&quot;|&#39;|[\"'])?([^)\"']*)", re.IGNORECASE)
_STYLE = re.compile(r"<style\b[^<>]*>(.*?)(?:</style|\Z)", re.IGNORECASE | re.DOTALL)
_NOTHING = Said("", False)


class Output(NamedTuple):
    """A merge tag that shows something: its place, its roots, its node, and the blocks that it stands in."""

    place: int
    roots: frozenset[str]
    node: Any
    blocks: tuple[int, ...]


class _Region(NamedTuple):
    """A stretch of HTML where values need more than escaping: `href`, `src` or `style`."""

    start: int
    end: int
    kind: str


def encode(html: str, nodes: list[Any], whole: bool = False) -> None:
    """Have every output encoded for where it stands; raises AddressFault. `whole` is for HTML that is one address."""
    masked = places.masked(html)
    found = sorted(outputs(nodes), key=lambda one: one.place)
    regions = [_Region(0, len(html), "href")] if whole else sorted(_regions(html, masked))
    index = 0
    for here in regions:
        said = addressing.read(html, here.start, here.end) if here.kind != "style" else {}
        before: list[Output] = []
        while index < len(found) and found[index].place < here.end:
            one = found[index]
            index += 1
            if one.place < here.start:
                continue
            if here.kind == "style":
                _add(one, AS_STYLE)
                continue
            _encode(one, here.kind, said.get(one.place, _NOTHING), before)
            before.append(one)


def outputs(
    nodes: list[Any], bound: Mapping[str, frozenset[str]] = MappingProxyType({}), blocks: tuple[int, ...] = ()
) -> Iterator[Output]:
    """Yield all outputs of a template; what a loop goes through stands for the name that it gives."""
    for node in nodes:
        if isinstance(node, OutputNode):
            yield Output(node.token.start_index, _roots(node.expression, bound), node, blocks)
            continue
        names = bound
        if isinstance(node, ForNode):
            names = {**bound, node.expression.identifier: _roots(node.expression.iterable, bound)}
        inside = list(node.children(None))
        if inside:
            yield from outputs(inside, names, (*blocks, id(node)))


def _roots(expression: Any, bound: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the roots of everything that an expression looks at, arguments of filters included."""
    found: set[str] = set()
    if isinstance(expression, Path):
        name = str(expression.head())
        found |= bound.get(name, {name})
    for one in expression.children():
        found |= _roots(one, bound)
    return frozenset(found)


def _regions(html: str, masked: str) -> Iterator[_Region]:
    for element in places.elements(masked, only_marked=True):
        for one in element.attributes:
            value = masked[one.start : one.end]
            if places.MARK not in value:
                continue
            addressing.check_blocks(html, one.start, one.end)
            if one.name in _LINKS or one.name in _PICTURES:
                yield _Region(one.start, one.end, "href" if one.name in _LINKS else "src")
            elif one.name == "style":
                yield from _styles(masked, one.start, one.end)
    for style in _STYLE.finditer(masked):
        if places.MARK in style[1]:
            yield from _styles(masked, style.start(1), style.end(1))


def _styles(masked: str, start: int, end: int) -> Iterator[_Region]:
    position = start
    for found in _URL.finditer(masked, start, end):
        yield _Region(position, found.start(1), "style")
        yield _Region(found.start(1), found.end(1), "src")
        position = found.end(1)
    yield _Region(position, end, "style")


def _encode(output: Output, kind: str, said: Said, before: list[Output]) -> None:
    """Encode one output that stands in an address behind words and other outputs."""
    root = next((root for root in OF_RECIPIENT if root in output.roots), None)
    if root is not None and not said.has_host:
        raise AddressFault(f"{root}: a contact's data may not say where a link leads", output.place)
    # Behind another that is always there it cannot begin the address; behind one that may not be there it might
    if not said.words and not any(one.blocks == output.blocks[: len(one.blocks)] for one in before):
        _add(output, AS_ADDRESS if kind == "href" else AS_PICTURE)
    else:
        _add(output, AS_PART if addressing.NO_HOST.match(said.words) and "?" not in said.words else AS_QUERY)


def _add(output: Output, name: str) -> None:
    expression = output.node.expression
    filters = expression.filters or []
    if name in (AS_PART, AS_QUERY) and any(one.name == "url_encode" for one in filters):
        return
    expression.filters = [*filters, Filter(output.node.token, name, [])]
