"""Compile Liquid templates: check the variables and filters, encode each output for its position in HTML, and render.

`merge.parse_template` compiles and caches templates, and imports this module on first use. Code that needs the Liquid
library imports this module first: the modules of the library import each other, so two threads that begin with
different modules could deadlock.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
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

from appliance.content.designs import markup
from appliance.content.designs.language import (
    AS_ADDRESS,
    AS_PART,
    AS_PICTURE,
    AS_QUERY,
    AS_STYLE,
    liquid_environment,
    prepare_nodes,
    render_template,
)
from appliance.content.designs.markup import MergeTag, tags_between
from appliance.content.designs.merge_limits import (
    FILTERS,
    MAX_HEADER_CHARACTERS,
    Context,
    MergeError,
    line_and_column,
    render_deadline,
    scan_tags,
)
from appliance.content.designs.splice import NeedsLiquid, Piece, SpliceTemplate
from appliance.core.i18n import DEFAULT_LANGUAGE, gettext_noop

# Checks of addresses that contain merge tags: a single pass finds the text before each tag.
#
# Logic tags (`if`, `for` and others) may leave text out, so an address can begin in several ways. Until the host has
# ended in all of them, the remaining text must not form a forbidden scheme such as `javascript:`, and a contact's data
# must not become part of the host.

MAX_ADDRESS_CHARACTERS = 2_000
HOSTLESS_SCHEME = re.compile(r"(?:mailto|tel|sms):", re.IGNORECASE)
# Browsers treat any number of slashes after a scheme as two, and backslashes as slashes.
_TO_HOST = re.compile(r"https?:[/\\]*|[/\\]{2,}", re.IGNORECASE)
_WHOLE_HOST = re.compile(r"https?://[^/?#\\]+[/?#]", re.IGNORECASE)
_SCHEME = re.compile(r"(?:https?|mailto|tel|sms):", re.IGNORECASE)
_PORT = re.compile(r"[^:]*:\d{1,5}\Z")
_END_OF_HOST = re.compile(r"[/?#\\]")
# Browsers ignore these characters in an address.
_IGNORED_CHARACTERS = re.compile(r"[\x00-\x20\x7f-\xa0]+")
_BLOCKS = ("if", "unless", "case", "for", "raw")


class AddressError(Exception):
    """An error in an attribute or address: its text and values (see `MergeError`), and its index in the source."""

    def __init__(self, text: str, index: int, **values: Any) -> None:
        super().__init__(text % values)
        self.text, self.index, self.values = text, index, values


class AddressPrefix(NamedTuple):
    """The literal text of an address before an output, including the text inside conditions.

    `has_host` is True if, whichever conditions apply, the host ends before the output, or the address has no host.
    """

    text: str
    has_host: bool


def read_prefixes(html: str, tags: Sequence[MergeTag], start: int, end: int) -> dict[int, AddressPrefix]:
    """Return the address text before each output tag of `html[start:end]`, by the index of the tag.

    `tags` are all merge tags of the HTML.

    Raises AddressError if the address is longer than `MAX_ADDRESS_CHARACTERS`, if it may form a forbidden scheme, or if
    a logic tag follows literal text before the host has ended.
    """
    prefixes: dict[int, AddressPrefix] = {}
    text = run_text = ""
    is_sure = has_logic = begins_with_tag = False
    position, size = start, 0
    for tag in (*tags_between(tags, start, end), None):
        until = tag.start if tag else end
        size += until - position
        if size > MAX_ADDRESS_CHARACTERS:
            raise AddressError(
                gettext_noop("an address is too long (maximum is %(limit)s characters)"),
                start,
                limit=MAX_ADDRESS_CHARACTERS,
            )
        run = _IGNORED_CHARACTERS.sub("", unescape(html[position:until]))
        if not is_sure and not _has_safe_scheme(run):
            raise AddressError(gettext_noop("an address may only begin with https, http, mailto, tel or sms"), position)
        text, run_text = text + run, run_text + run
        is_sure = is_sure or (not has_logic and has_host_ended(text))
        if tag is None:
            break
        position = tag.end
        if html.startswith("{{", tag.start):
            prefixes[until] = AddressPrefix(text, is_sure or _WHOLE_HOST.match(run_text) is not None)
            begins_with_tag = begins_with_tag or not (text or has_logic)
            run_text += "{"
            continue
        if text and not (is_sure or has_logic or begins_with_tag):
            raise AddressError(
                gettext_noop("conditions are not allowed in an address before its host has ended"), until
            )
        has_logic, run_text = True, ""
    return prefixes


def has_host_ended(text: str) -> bool:
    """Return whether the beginning of an address contains the whole host, or a scheme without a host (`mailto:`)."""
    return HOSTLESS_SCHEME.match(text) is not None or _END_OF_HOST.search(_TO_HOST.sub("", text, count=1)) is not None


def _has_safe_scheme(run: str) -> bool:
    """Return whether literal text of an address contains no scheme other than the allowed ones.

    A port (`host:8080`) is not a scheme.
    """
    lead = _END_OF_HOST.split(run, maxsplit=1)[0]
    return ":" not in lead or _SCHEME.match(lead) is not None or _PORT.match(lead) is not None


def check_blocks(tags: Sequence[MergeTag], start: int, end: int) -> None:
    """Raise AddressError unless every block tag of an attribute value, `html[start:end]`, begins and ends there.

    `tags` are all merge tags of the HTML.

    A condition that spans the end of an attribute could leave out the attribute's closing quote, so that text would
    become attributes.
    """
    open_blocks: list[str] = []
    for tag in tags_between(tags, start, end):
        name = tag.name
        if name in _BLOCKS:
            open_blocks.append(name)
        elif name.startswith("end") or name in ("else", "elsif", "when"):
            if not open_blocks:
                raise AddressError(
                    gettext_noop("%(tag)s: a block may not end within an attribute"), tag.start, tag=name
                )
            if name.startswith("end"):
                open_blocks.pop()
    if open_blocks:
        raise AddressError(
            gettext_noop("%(tag)s: a block within an attribute must end there"), start, tag=open_blocks[-1]
        )


# Conditions guarantee values: within `{% if contact.city %}` the variable `contact.city` is known to have a value.

Names = frozenset[str]
NO_NAMES: Names = frozenset()
_COMPARISONS = (ContainsExpression, GeExpression, GtExpression, LeExpression, LtExpression)


def iterate_branches(node: Any) -> list[tuple[Any, Names]]:
    """Return the child nodes of a node, each with the variables that are known to have a value inside it."""
    if not isinstance(node, IfNode | UnlessNode):
        return [(child, NO_NAMES) for child in node.children(None)]
    holds = isinstance(node, IfNode)
    branches: list[tuple[Any, Names]] = [(node.consequence, names_with_value(node.condition, holds))]
    # A later branch is shown only if the earlier conditions are false.
    names = names_with_value(node.condition, not holds)
    for alternative in node.alternatives:
        branches.append((alternative, names | names_with_value(alternative.expression, True)))
        names |= names_with_value(alternative.expression, False)
    return [*branches, (node.default, names)] if node.default else branches


def names_with_value(condition: Any, holds: bool) -> Names:
    """Return the variables that must have a value if a condition is true (`holds`), or if it is false (not `holds`)."""
    if isinstance(condition, BooleanExpression):
        return names_with_value(condition.expression, holds)
    if isinstance(condition, LogicalNotExpression):
        return names_with_value(condition.right, not holds)
    if isinstance(condition, LogicalAndExpression | LogicalOrExpression):
        left, right = names_with_value(condition.left, holds), names_with_value(condition.right, holds)
        return left | right if isinstance(condition, LogicalAndExpression) == holds else left & right
    if isinstance(condition, EqExpression | NeExpression):
        return _compared_names(condition, holds == isinstance(condition, EqExpression))
    if isinstance(condition, _COMPARISONS):
        return _path_name(condition.left) | _path_name(condition.right) if holds else NO_NAMES
    return _path_name(condition) if holds else NO_NAMES


def _compared_names(condition: Any, is_same: bool) -> Names:
    """Return the variables that are known to have a value if two operands are equal, or unequal (not `is_same`).

    A variable has a value if it equals a literal text that is not empty, or differs from nil.
    """
    for side, other_side in ((condition.left, condition.right), (condition.right, condition.left)):
        if isinstance(other_side, Nil):
            return NO_NAMES if is_same else _path_name(side)
        if isinstance(other_side, StringLiteral) and other_side.value:
            return _path_name(side) if is_same else NO_NAMES
    return NO_NAMES


def _path_name(expression: Any) -> Names:
    return frozenset((str(expression),)) if isinstance(expression, Path) else NO_NAMES


# Encoding of values by their position in HTML.
#
# Every value is HTML-escaped. Within an address it is also percent-encoded. A value at the beginning of an address must
# have an allowed scheme, else it is replaced. Within styles, characters with a meaning in CSS are removed. Logic tags
# stay unchanged.

# The roots of variables with a contact's data, which must not decide the host of a link. The root of `contact.city` is
# `contact`.
RECIPIENT_ROOTS = ("contact", "first_name", "last_name", "email")

_LINKS = ("href", "action", "formaction", "xlink:href")
_PICTURES = ("src", "background", "poster")
_URL = re.compile(r"url\s*\(\s*(?:&quot;|&#39;|[\"'])?([^)\"']*)", re.IGNORECASE)
_STYLE = re.compile(r"<style\b[^<>]*>(.*?)(?:</style|\Z)", re.IGNORECASE | re.DOTALL)
_NO_PREFIX = AddressPrefix("", False)


class Output(NamedTuple):
    """An output tag: its index in the source, the roots of its variables, its node, and the ids of its blocks.

    `blocks` lists the enclosing blocks from the outermost to the innermost.
    """

    offset: int
    roots: frozenset[str]
    node: Any
    blocks: tuple[int, ...]


class _Region(NamedTuple):
    """A range of HTML whose values need more than escaping.

    `kind` is `href` for a link, `src` for the address of a picture, or `style` for CSS.
    """

    start: int
    end: int
    kind: str


def encode_outputs(html: str, nodes: list[Any], is_address: bool = False) -> None:
    """Add an encoding filter to every output in a link, picture address or style.

    `nodes` are the nodes of the template parsed from `html`; they are changed in place. `is_address` means that the
    whole source is one link address. Raises AddressError if a merge tag could give an address a forbidden scheme or put
    a contact's data into its host, or if a block crosses the end of an attribute.
    """
    tags = markup.find_tags(html)
    masked = markup.mask_tags(html, tags)
    all_outputs = sorted(iterate_outputs(nodes), key=lambda output: output.offset)
    regions = [_Region(0, len(html), "href")] if is_address else sorted(_iterate_regions(masked, tags))
    index = 0
    for region in regions:
        prefixes = read_prefixes(html, tags, region.start, region.end) if region.kind != "style" else {}
        earlier: list[Output] = []
        while index < len(all_outputs) and all_outputs[index].offset < region.end:
            output = all_outputs[index]
            index += 1
            if output.offset < region.start:
                continue
            if region.kind == "style":
                _add_filter(output, AS_STYLE)
                continue
            _encode_output(output, region.kind, prefixes.get(output.offset, _NO_PREFIX), earlier)
            earlier.append(output)


def iterate_outputs(
    nodes: list[Any], bound: Mapping[str, frozenset[str]] = MappingProxyType({}), blocks: tuple[int, ...] = ()
) -> Iterator[Output]:
    """Yield all outputs of a template.

    `bound` maps the loop variables in scope to the roots of the variables that their loops iterate over. `blocks` are
    the ids of the enclosing blocks.
    """
    for node in nodes:
        if isinstance(node, OutputNode):
            yield Output(node.token.start_index, _expression_roots(node.expression, bound), node, blocks)
            continue
        names = bound
        if isinstance(node, ForNode):
            names = {**bound, node.expression.identifier: _expression_roots(node.expression.iterable, bound)}
        children = list(node.children(None))
        if children:
            yield from iterate_outputs(children, names, (*blocks, id(node)))


def _expression_roots(expression: Any, bound: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the roots of all variables in an expression, including those in arguments of filters."""
    roots: set[str] = set()
    if isinstance(expression, Path):
        name = str(expression.head())
        roots |= bound.get(name, {name})
    for child in expression.children():
        roots |= _expression_roots(child, bound)
    return frozenset(roots)


def _iterate_regions(masked: str, tags: Sequence[MergeTag]) -> Iterator[_Region]:
    for element in markup.iterate_elements(masked, only_marked=True):
        for attribute in element.attributes:
            value = masked[attribute.start : attribute.end]
            if markup.MASK not in value:
                continue
            check_blocks(tags, attribute.start, attribute.end)
            if attribute.name in _LINKS or attribute.name in _PICTURES:
                yield _Region(attribute.start, attribute.end, "href" if attribute.name in _LINKS else "src")
            elif attribute.name == "style":
                yield from _iterate_style_regions(masked, attribute.start, attribute.end)
    for style in _STYLE.finditer(masked):
        if markup.MASK in style[1]:
            yield from _iterate_style_regions(masked, style.start(1), style.end(1))


def _iterate_style_regions(masked: str, start: int, end: int) -> Iterator[_Region]:
    position = start
    for match in _URL.finditer(masked, start, end):
        yield _Region(position, match.start(1), "style")
        yield _Region(match.start(1), match.end(1), "src")
        position = match.end(1)
    yield _Region(position, end, "style")


def _encode_output(output: Output, kind: str, prefix: AddressPrefix, earlier: list[Output]) -> None:
    """Add the encoding filter to an output in an address; `earlier` are the outputs before it in the same address.

    Raises AddressError if a contact's data could become part of the host.
    """
    root = next((root for root in RECIPIENT_ROOTS if root in output.roots), None)
    if root is not None and not prefix.has_host:
        raise AddressError(
            gettext_noop("%(root)s: a contact's data may not say where a link leads"), output.offset, root=root
        )
    # An earlier output whose blocks all enclose this one is shown whenever this one is, so this one is not at the
    # beginning.
    if not prefix.text and not any(
        earlier_output.blocks == output.blocks[: len(earlier_output.blocks)] for earlier_output in earlier
    ):
        _add_filter(output, AS_ADDRESS if kind == "href" else AS_PICTURE)
    else:
        _add_filter(output, AS_PART if HOSTLESS_SCHEME.match(prefix.text) and "?" not in prefix.text else AS_QUERY)


def _add_filter(output: Output, name: str) -> None:
    expression = output.node.expression
    filters = expression.filters or []
    if name in (AS_PART, AS_QUERY) and any(filter_.name == "url_encode" for filter_ in filters):
        return
    expression.filters = [*filters, Filter(output.node.token, name, [])]


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class CompiledTemplate:
    """A compiled template, which several threads may render at once.

    Creating it raises MergeError if the source cannot be parsed, exceeds a limit, or uses a forbidden variable, filter
    or address. `variables` are the dotted names of the variables, sorted. `defaults` are pairs of a variable and its
    default (`_find_defaults`). `size` is the approximate memory in bytes.
    """

    def __init__(self, source: str, context: Context, language: str = DEFAULT_LANGUAGE) -> None:
        self.context, self.language = context, language
        self.source = source
        self.size = scan_tags(source)
        environment = liquid_environment(context in ("html", "url"), language)
        try:
            self._template = environment.from_string(source)
            prepare_nodes(self._template.nodes)
            analysis = self._template.analyze()
        except LiquidError as error:
            raise _to_merge_error(error) from None
        except RecursionError:
            raise MergeError(gettext_noop("is nested too deeply")) from None
        self.variables = sorted(
            {".".join(str(part) for part in use.segments) for uses in analysis.globals.values() for use in uses}
        )
        self.defaults = _find_defaults(self._template.nodes, self.variables)
        self._check_variables(analysis)
        if environment.autoescape:
            try:
                encode_outputs(source, self._template.nodes, is_address=context == "url")
            except AddressError as fault:
                raise MergeError(fault.text, *line_and_column(source, fault.index), **fault.values) from None
        try:
            self._splice: SpliceTemplate | None = SpliceTemplate(self._template.nodes, environment)
        except NeedsLiquid:
            self._splice = None
        # The text of a template without tags, once it was rendered: it is the same for all recipients.
        self._constant: str | None = None
        self._is_constant = self._splice is not None and all(isinstance(piece, str) for piece in self._splice.pieces)

    @property
    def pieces(self) -> list[Piece] | None:
        """Return the fixed texts, outputs and conditions in order.

        None means that only the Liquid library can render the template.
        """
        return None if self._splice is None else self._splice.pieces

    def _check_variables(self, analysis: TemplateAnalysis) -> None:
        for variables in (*analysis.globals.values(), *analysis.variables.values(), *analysis.locals.values()):
            for variable in variables:
                if not isinstance(variable.segments[0], str):
                    # In `[contact.city].name`, a contact's data would decide which variable is read.
                    raise MergeError(
                        gettext_noop("a value must begin with its name"),
                        *line_and_column(self.source, variable.span.index),
                    )
                if any(str(part).startswith("_") for part in variable.segments):
                    name = ".".join(map(str, variable.segments))
                    raise MergeError(
                        gettext_noop("%(name)s: names may not begin with _"),
                        *line_and_column(self.source, variable.span.index),
                        name=name,
                    )
        for name, uses in analysis.filters.items():
            if name not in FILTERS:
                raise MergeError(
                    gettext_noop("unknown filter '%(name)s'"), *line_and_column(self.source, uses[0].index), name=name
                )

    def render(self, values: Mapping[str, Any], until: float | None = None) -> str:
        """Render the template with the merge values; raises MergeError past a limit, or if a filter rejects a value.

        `until` is the deadline of the whole message, as processor time of the thread; None allows the full time
        (`merge_limits.render_deadline`). In the context `header`, control characters and line ends become spaces.
        """
        if self._constant is not None:
            return self._constant
        until = render_deadline() if until is None else until
        text = self._splice.fill(values, until) if self._splice is not None else None
        text = self.render_whole(values, until) if text is None else text
        if self.context == "header":
            if len(text) > MAX_HEADER_CHARACTERS:
                raise MergeError(
                    gettext_noop("is too long once it is filled in (maximum is %(limit)s characters)"),
                    limit=MAX_HEADER_CHARACTERS,
                )
            text = _CONTROL.sub(" ", text).strip()
        if self._is_constant:
            self._constant = text
        return text

    def render_whole(self, values: Mapping[str, Any], until: float | None = None) -> str:
        """Render the template with the Liquid library, for templates or values that `SpliceTemplate` does not support.

        Raises MergeError past a limit, or if a filter rejects a value.
        """
        try:
            return render_template(self._template, values, render_deadline() if until is None else until)
        except LiquidError as error:
            raise _to_merge_error(error) from None
        except (TypeError, ValueError, ArithmeticError, RecursionError, OSError) as error:
            raise MergeError(gettext_noop("cannot be filled: %(error)s"), error=error) from None


def _find_defaults(nodes: list[Any], names: list[str]) -> tuple[tuple[str, str | None], ...]:
    """Return (variable, default) for each output of a variable; the default is None if the output has none.

    The default is empty for an output that a condition hides from contacts without a value. Pairs with an empty default
    follow for the variables that no output uses.
    """
    defaults: list[tuple[str, str | None]] = []
    pending = [(node, NO_NAMES) for node in nodes]
    while pending:
        node, names_known = pending.pop()
        pending += [(child, names_known | branch_names) for child, branch_names in iterate_branches(node)]
        if isinstance(node, OutputNode):
            expression: Any = node.expression
            name = str(expression.left) if isinstance(expression.left, Path) else ""
            if name in names:
                default = _find_default(expression)
                defaults.append((name, "" if default is None and name in names_known else default))
    shown_names = {name for name, _ in defaults}
    # Variables used only in conditions and loops need no value.
    return (*defaults, *((name, "") for name in names if name not in shown_names))


def _find_default(expression: Any) -> str | None:
    for filter_ in expression.filters or ():
        if filter_.name == "default" and filter_.args and isinstance(filter_.args[0].value, StringLiteral):
            return str(filter_.args[0].value.value)
    return None


def _to_merge_error(error: LiquidError) -> MergeError:
    message = str(error.args[0]).replace("%", "%%") if error.args else gettext_noop("cannot be parsed")
    if error.token is None:
        return MergeError(message)
    start = error.token.start_index
    source = error.token.source
    # The library reports a negative index for an error at the end of the source.
    return MergeError(message, *line_and_column(source, start if start >= 0 else len(source)))
