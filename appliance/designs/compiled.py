"""A template that was parsed by the library: checked, and filled. `merge` is the way here, and needs no library.

Whoever loads the library first loads it by this module: its parts need each other, and two threads that enter it at two
ends find half of it.
"""

import re
from collections.abc import Mapping
from typing import Any

from liquid.builtin.expressions import Path, StringLiteral
from liquid.builtin.output import OutputNode
from liquid.exceptions import LiquidError
from liquid.static_analysis import TemplateAnalysis

from appliance.designs import guards, outputs
from appliance.designs.addressing import AddressFault
from appliance.designs.language import language, prepare, render
from appliance.designs.merge import FILTERS, MAX_HEADER_CHARACTERS, Context, MergeError, deadline, place, scan
from appliance.designs.splice import NotPlain, Piece, Splice

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
                outputs.encode(source, self._template.nodes, whole=context == "url")
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
        for name, places in analysis.filters.items():
            if name not in FILTERS:
                raise MergeError(f"unknown filter '{name}'", *place(self.source, places[0].index))

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
    pending = [(node, guards.NONE) for node in nodes]
    while pending:
        node, known = pending.pop()
        pending += [(one, known | asked) for one, asked in guards.branches(node)]
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
