"""A template that was parsed by the library: checked, and filled. `merge` is the way here, and needs no library.

Whoever loads the library first loads it by this module: its parts need each other, and two threads that enter it at two
ends find half of it.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from liquid.builtin.expressions import BooleanExpression, Filter, Nil, Path, StringLiteral
from liquid.builtin.expressions.logical import (
    ContainsExpression,
    EqExpression,
    GeExpression,
    GtExpression,
    LeExpression,
    LogicalAndExpression,
    LogicalNotExpression,
    LogicalOrExpression,
    LtExpression,
    NeExpression,
)
from liquid.builtin.output import OutputNode
from liquid.builtin.tags.for_tag import ForNode
from liquid.builtin.tags.if_tag import IfNode
from liquid.builtin.tags.unless_tag import UnlessNode
from liquid.exceptions import LiquidError
from liquid.static_analysis import TemplateAnalysis

from appliance.content.designs import addressing, places
from appliance.content.designs.addressing import AddressFault, Said
from appliance.content.designs.language import (
    AS_ADDRESS,
    AS_PART,
    AS_PICTURE,
    AS_QUERY,
    AS_STYLE,
    language,
    prepare,
    render,
)
from appliance.content.designs.merge import FILTERS, MAX_HEADER_CHARACTERS, Context, MergeError, deadline, place, scan
from appliance.content.designs.splice import NotPlain, Piece, Splice

# What the question of a block makes sure of: which variables have a value wherever its words are shown.

Names = frozenset[str]
NONE: Names = frozenset()
_COMPARISONS = (ContainsExpression, GeExpression, GtExpression, LeExpression, LtExpression)


def branches(node: Any) -> list[tuple[Any, Names]]:
    """Return the nodes within a node, each with the variables that have a value where it is shown."""
    if not isinstance(node, IfNode | UnlessNode):
        return [(one, NONE) for one in node.children(None)]
    holds = isinstance(node, IfNode)
    found: list[tuple[Any, Names]] = [(node.consequence, asked(node.condition, holds))]
    # Behind a question stands what its answer was not
    known = asked(node.condition, not holds)
    for one in node.alternatives:
        found.append((one, known | asked(one.expression, True)))
        known |= asked(one.expression, False)
    return [*found, (node.default, known)] if node.default else found


def asked(question: Any, holds: bool) -> Names:
    """Return the variables that have a value where a question holds, or where it does not."""
    if isinstance(question, BooleanExpression):
        return asked(question.expression, holds)
    if isinstance(question, LogicalNotExpression):
        return asked(question.right, not holds)
    if isinstance(question, LogicalAndExpression | LogicalOrExpression):
        left, right = asked(question.left, holds), asked(question.right, holds)
        return left | right if isinstance(question, LogicalAndExpression) == holds else left & right
    if isinstance(question, EqExpression | NeExpression):
        return _compared(question, holds == isinstance(question, EqExpression))
    if isinstance(question, _COMPARISONS):
        return _named(question.left) | _named(question.right) if holds else NONE
    return _named(question) if holds else NONE


def _compared(question: Any, is_same: bool) -> Names:
    """Return what has a value where two are the same, or are not."""
    for one, other in ((question.left, question.right), (question.right, question.left)):
        if isinstance(other, Nil):
            return NONE if is_same else _named(one)
        if isinstance(other, StringLiteral) and other.value:
            return _named(one) if is_same else NONE
    return NONE


def _named(expression: Any) -> Names:
    return frozenset((str(expression),)) if isinstance(expression, Path) else NONE


# Where in HTML the result of a merge tag stands, and what it must be encoded for there.
#
# Everywhere values are escaped. Within an address they are one part of it and cannot begin another; where an address
# begins with one it must be an address that leads somewhere harmless; within styles they are a word. Logic is left
# alone.

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


def encode_outputs(html: str, nodes: list[Any], whole: bool = False) -> None:
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


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class Compiled:
    """A template ready to be filled, many times and from many threads."""

    def __init__(self, source: str, context: Context) -> None:
        self.context = context
        self.source = source
        self.size = scan(source)  # bytes, about
        environment = language(context in ("html", "url"))
        try:
            self._template = environment.from_string(source)
            prepare(self._template.nodes)
            analysis = self._template.analyze()
        except LiquidError as error:
            raise _error(error) from None
        except RecursionError:
            raise MergeError("is nested too deeply") from None
        self.variables = sorted(
            {".".join(str(part) for part in one.segments) for found in analysis.globals.values() for one in found}
        )
        self.defaults = _defaults(self._template.nodes, self.variables)
        self._check(analysis)
        if environment.autoescape:
            try:
                encode_outputs(source, self._template.nodes, whole=context == "url")
            except AddressFault as fault:
                raise MergeError(fault.words, *place(source, fault.index)) from None
        try:
            self._splice: Splice | None = Splice(self._template.nodes, environment)
        except NotPlain:
            self._splice = None

    @property
    def pieces(self) -> list[Piece] | None:
        """The fixed pieces and what stands between them, or None for a template that only the language can fill."""
        return None if self._splice is None else self._splice.pieces

    def _check(self, analysis: TemplateAnalysis) -> None:
        for found in (*analysis.globals.values(), *analysis.variables.values(), *analysis.locals.values()):
            for one in found:
                if not isinstance(one.segments[0], str):
                    # Its name is known only with somebody's values: it may be a contact's
                    raise MergeError("a value must begin with its name", *place(self.source, one.span.index))
                if any(str(part).startswith("_") for part in one.segments):
                    name = ".".join(map(str, one.segments))
                    raise MergeError(f"{name}: names may not begin with _", *place(self.source, one.span.index))
        for name, uses in analysis.filters.items():
            if name not in FILTERS:
                raise MergeError(f"unknown filter '{name}'", *place(self.source, uses[0].index))

    def render(self, values: Mapping[str, Any], until: float | None = None) -> str:
        """Fill the template; raises MergeError where a limit is passed or a filter cannot work on a value.

        `until` is the deadline of the message that this is a part of (`merge.deadline`); alone it has its own.
        """
        until = deadline() if until is None else until
        text = self._splice.fill(values, until) if self._splice is not None else None
        text = self.render_whole(values, until) if text is None else text
        if self.context != "header":
            return text
        if len(text) > MAX_HEADER_CHARACTERS:
            raise MergeError(f"is too long once it is filled in (maximum is {MAX_HEADER_CHARACTERS} characters)")
        return _CONTROL.sub(" ", text).strip()

    def render_whole(self, values: Mapping[str, Any], until: float | None = None) -> str:
        """Fill the template by the language itself, as `render` does where pieces do not do."""
        try:
            return render(self._template, values, deadline() if until is None else until)
        except LiquidError as error:
            raise _error(error) from None
        except (TypeError, ValueError, ArithmeticError, RecursionError, OSError) as error:
            raise MergeError(f"cannot be filled: {error}") from None


def _defaults(nodes: list[Any], names: list[str]) -> tuple[tuple[str, str | None], ...]:
    """Return each use of a variable with what is said for those who have none; None where nothing is."""
    found: list[tuple[str, str | None]] = []
    pending = [(node, NONE) for node in nodes]
    while pending:
        node, known = pending.pop()
        pending += [(one, known | asked) for one, asked in branches(node)]
        if isinstance(node, OutputNode):
            expression: Any = node.expression
            name = str(expression.left) if isinstance(expression.left, Path) else ""
            if name in names:
                default = _default_of(expression)
                # Who has none is not shown it, where the block around it asks
                found.append((name, "" if default is None and name in known else default))
    shown = {name for name, _ in found}
    # What is only asked for, or gone through, needs no value
    return (*found, *((name, "") for name in names if name not in shown))


def _default_of(expression: Any) -> str | None:
    for one in expression.filters or ():
        if one.name == "default" and one.args and isinstance(one.args[0].value, StringLiteral):
            return str(one.args[0].value.value)
    return None


def _error(error: LiquidError) -> MergeError:
    message = str(error.args[0]) if error.args else "cannot be parsed"
    if error.token is None:
        return MergeError(message)
    start = error.token.start_index
    source = error.token.source
    # The library points before the beginning when it ran off the end
    return MergeError(message, *place(source, start if start >= 0 else len(source)))
