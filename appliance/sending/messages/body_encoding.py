"""The bodies of a campaign as they stand on the wire: encoded once, with what differs between people spliced in.

A value stands between soft line breaks (RFC 2045, 6.7, rule 5), so that it can be encoded for itself and what surrounds
it never changes. What the pieces of `designs.splice` cannot say is rendered by the language and encoded whole.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from liquid.exceptions import LiquidError

from appliance.content.designs import links, merge
from appliance.content.designs.compiled import Compiled
from appliance.content.designs.language import ENCODINGS
from appliance.content.designs.merge import MAX_OUTPUT
from appliance.content.designs.splice import Budget, NotPlain, Piece, Question, Slot
from appliance.sending.delivery.mime import SOFT_BREAK, fragment, is_single_spaced, quoted_printable

# Encoded values kept for each slot: first names and cities come again, addresses do not
_MAX_KEPT = 4_096
# What is made by us for each message: its tokens and its links, short enough for one line
_TOKENS = (links.CLICK, links.OPEN)
_OWN = (*_TOKENS, "unsubscribe_url", "preferences_url", "view_url")
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9:/._-]{0,74}")


class Plan(NamedTuple):
    """The pieces of a part in their order, and which of them are filled: by a slot, or by the answer to a question."""

    pieces: list[bytes]
    slots: list[tuple[int, list[int]]]  # the number of a slot, and the places where it is shown
    questions: list[tuple[int, Question, "Plan", "Plan"]]


class Body:
    """One part of a message, filled for one person after the other; used by one thread."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._slots: list[Slot] = []
        self._kept: list[dict[str, bytes]] = []
        self._own: dict[int, bool] = {}  # by number, whether it is a token
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._is_single_spaced = True  # what does not differ between people
        self._plan = None if compiled.pieces is None else self._planned(compiled.pieces)
        self.is_single_spaced = False  # what was filled last, as far as is known without reading it

    def fill(self, values: Mapping[str, Any], until: float | None = None) -> bytes:
        """Return the part for one person in quoted-printable; raises MergeError as the template itself does, for
        what is not done by the deadline of its message too."""
        until = merge.deadline() if until is None else until
        self.is_single_spaced = self._is_single_spaced
        if self._plan is not None:
            try:
                body = self._filled(self._plan, values, [None] * len(self._slots), Budget(until))
            except (NotPlain, LiquidError, TypeError, ValueError):
                pass  # the language says what is wrong, or knows better
            else:
                if len(body) <= MAX_OUTPUT:
                    return body if body and not body.endswith(SOFT_BREAK) else body + b"\r\n"
        self.is_single_spaced = False
        return quoted_printable(self._compiled.render(values, until))

    def _planned(self, pieces: list[Piece]) -> Plan:
        plan = Plan([], [], [])
        places: dict[int, list[int]] = {}
        words = ""
        for one in [*pieces, None]:
            if isinstance(one, str):
                words += one
                continue
            if words:
                plan.pieces.append(said := fragment(words))
                self._is_single_spaced &= is_single_spaced(said)
                words = ""
            if isinstance(one, Slot):
                places.setdefault(self._number(one), []).append(len(plan.pieces))
            elif one is not None:
                branches = self._planned(one.then), self._planned(one.other)
                plan.questions.append((len(plan.pieces), one, *branches))
            plan.pieces.append(b"")
        plan.slots.extend(places.items())
        return plan

    def _number(self, slot: Slot) -> int:
        """Return the number of a slot; the same value shown in many places is looked up and encoded once."""
        number = self._numbers.setdefault(slot.name, len(self._slots))
        if number == len(self._slots):
            self._slots.append(slot)
            self._kept.append({})
            if slot.name[0] in _OWN and all(one[0] in ENCODINGS for one in slot.name[1:]):
                self._own[number] = slot.name[0] in _TOKENS
        return number

    def _filled(self, plan: Plan, values: Mapping[str, Any], made: list[bytes | None], budget: Budget) -> bytes:
        pieces = plan.pieces.copy()
        for number, places in plan.slots:
            shown = made[number]
            if shown is None:
                shown = made[number] = self._shown(number, values)
            budget.take(len(shown) * len(places))
            for place in places:
                pieces[place] = shown
        for place, question, then, other in plan.questions:
            pieces[place] = self._filled(then if question.holds(values) else other, values, made, budget)
        return b"".join(pieces)

    def _shown(self, number: int, values: Mapping[str, Any]) -> bytes:
        slot, kept = self._slots[number], self._kept[number]
        value = slot.look(values)
        is_token = self._own.get(number)
        if is_token is not None and type(value) is str and (is_token or _PLAIN.fullmatch(value)):
            # Nothing of it means anything else wherever it stands, and nobody else has the same
            return value.encode() + SOFT_BREAK
        shown = kept.get(value) if type(value) is str else None
        if shown is not None:
            return shown
        shown = fragment(slot.shown(value))
        if not is_single_spaced(shown):
            self.is_single_spaced = False  # and so each time: it is not kept
        elif type(value) is str:
            if len(kept) >= _MAX_KEPT:
                kept.clear()
            kept[value] = shown
        return shown
