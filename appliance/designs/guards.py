"""What the question of a block makes sure of: which variables have a value wherever its words are shown."""

from typing import Any

from liquid.builtin.expressions import BooleanExpression, Nil, Path, StringLiteral
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
from liquid.builtin.tags.if_tag import IfNode
from liquid.builtin.tags.unless_tag import UnlessNode

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
