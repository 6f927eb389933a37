"""Emails of a campaign or flow step, encoded once for all recipients.

The text between merge tags is encoded once, and the values of each recipient are inserted. Each value is enclosed by
soft line breaks (RFC 2045, 6.7, rule 5), so that it can be encoded alone and the encoded text around it does not depend
on it. Templates that cannot be divided into pieces are rendered by Liquid and encoded as a whole.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any

from liquid.exceptions import LiquidError

from appliance.content.designs import links as designs_links
from appliance.content.designs import merge_limits
from appliance.content.designs.compiled_template import CompiledTemplate
from appliance.content.designs.language import ENCODINGS
from appliance.content.designs.merge_limits import MAX_OUTPUT_BYTES
from appliance.content.designs.splice import (
    ConditionPiece,
    FillBudget,
    NeedsLiquid,
    Piece,
    Slot,
    Variable,
    as_parent,
    is_present,
    list_variables,
)
from appliance.core import addresses
from appliance.sending.delivery.mime import SOFT_BREAK, Mail, encode_fragment, encode_quoted_printable, is_single_spaced
from appliance.sending.messages import links
from appliance.sending.messages.compose import CompiledMessage, Sender

# Encoded values are cached, because first names and cities repeat: the maximum number of a slot and of a body, and the
# maximum size of a value in bytes.
_MAX_CACHED_VALUES, _MAX_CACHED_OF_BODY, _MAX_CACHED_BYTES = 1_024, 4_096, 100
# A subject or From name is cached if it and the values in it have at most this many characters together.
_MAX_CACHED_HEADER_CHARACTERS = 300
# Names of tokens and links that are different in each message and short enough for one line.
_TOKENS = (designs_links.TRACK_CLICK, designs_links.TRACK_OPEN)
_MESSAGE_VALUES = (*_TOKENS, *links.LINK_NAMES)
# Tokens and URLs that fit on one line and that quoted-printable leaves as they are.
_PLAIN_URL = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9:/._-]{0,74}")
# Texts that HTML and quoted-printable leave as they are: single words, names and addresses.
PLAIN_TEXT = re.compile(r"(?!From )(?=.{1,74}\Z)[A-Za-z0-9_-][A-Za-z0-9:/._@+,-]*(?: [A-Za-z0-9:/._@+,-]+)*")
_MAX_PLAIN_CHARACTERS = 75
# Filters that leave such texts as they are.
_FILTERS_WITHOUT_EFFECT = ("default", "strip", "escape", "newline_to_br")

# Generating the function of a body takes as long as filling it some dozen times, so the first fills do without it, and
# so do templates with more different merge tags and conditions, for which it would take too long.
_FILLS_BEFORE_GENERATING = 10
_MAX_PARTS = 250

# An encoder of a slot: it returns an encoded value, and counts values that take long to encode.
_Encoder = Callable[[Any, FillBudget], bytes]
# A function that fills a body with the values of one recipient.
_Fill = Callable[[Mapping[str, Any], FillBudget], bytes]


class EncodedMessage:
    """A compiled message whose bodies are encoded once for all recipients; only one thread may use it."""

    def __init__(self, content: CompiledMessage) -> None:
        self._content = content
        self._subject, self._from_name = CachedHeader(content.subject), CachedHeader(content.from_name)
        self._bodies: tuple[EncodedBody, EncodedBody] | None = None

    def build_mail(
        self, values: Mapping[str, Any], sender: Sender, message_id: int, recipient: str, date: float,
        headers: tuple[tuple[str, str], ...], shared: bytes = b"",
    ) -> Mail:  # fmt: skip
        """Build the email to one recipient.

        `values` are the merge tag values, and `date` is in seconds since 1970 UTC. `headers` belong to this message
        alone; `shared` are encoded headers that all messages of its campaign or step have. Raises MergeError if a merge
        tag cannot be filled in or the time is over, and ValueError if an address cannot be written into a header.
        """
        content = self._content
        sender = _get_ascii_sender(sender)
        if self._bodies is None:
            # Created only when needed: a message to one recipient is either sent or previewed.
            self._bodies = EncodedBody(content.html), EncodedBody(content.text)
        html, text = self._bodies
        until = merge_limits.render_deadline()
        return Mail(
            message_id=links.build_message_id(message_id, sender.email.rpartition("@")[2]),
            date=date,
            sender=(self._from_name.render(values, until) or sender.name, sender.email),
            recipient=recipient,
            subject=self._subject.render(values, until),
            text=text.fill(values, until),
            html=html.fill(values, until),
            reply_to=sender.reply_to or None,
            headers=headers,
            shared=shared,
            # The bodies set this when they are filled, so it is read last.
            is_single_spaced=text.is_single_spaced and html.is_single_spaced,
        )


class CachedHeader:
    """A subject or From name, rendered once for equal values: most contain at most a first name, and these repeat."""

    def __init__(self, compiled: CompiledTemplate) -> None:
        self._compiled = compiled
        # None if only the Liquid library can render the template.
        self._variables = None if compiled.pieces is None else list_variables(compiled.pieces)
        self._texts: dict[tuple[str | None, ...], str] = {}

    def render(self, values: Mapping[str, Any], until: float) -> str:
        """Return the text for these values; `until` and the errors are those of `CompiledTemplate.render`."""
        key = self._read_key(values)
        if key is None:
            return self._compiled.render(values, until)
        text = self._texts.get(key)
        if text is None:
            text = self._compiled.render(values, until)
            size = len(text) + sum(len(value) for value in key if value is not None)
            if len(self._texts) < _MAX_CACHED_VALUES and size <= _MAX_CACHED_HEADER_CHARACTERS:
                self._texts[key] = text
        return text

    def _read_key(self, values: Mapping[str, Any]) -> tuple[str | None, ...] | None:
        """Return the values in the text as its key in the cache, or None if the text must not be cached.

        Only texts and None are keys: equal values of other types, such as 1 and 1.0, are written differently.
        """
        if self._variables is None:
            return None
        try:
            key = [variable.look_up(values) for variable in self._variables]
        except NeedsLiquid:
            return None
        return tuple(key) if all(value is None or type(value) is str for value in key) else None


@lru_cache(maxsize=64)
def _get_ascii_sender(sender: Sender) -> Sender:
    """Return a sender with its addresses in ASCII (IDNA), as far as they have such a form."""
    reply_to = addresses.to_ascii(sender.reply_to) or sender.reply_to if sender.reply_to else sender.reply_to
    return Sender(addresses.to_ascii(sender.email) or sender.email, sender.name, reply_to)


class EncodedBody:
    """One body of a message (HTML or text), filled for one recipient after another; only one thread may use it."""

    def __init__(self, compiled: CompiledTemplate) -> None:
        self._compiled = compiled
        self._is_single_spaced = True  # of the pieces that are the same for all recipients
        self._cached_count = 0  # of the values in all caches
        self._fill_count = 0
        self._generated: _Fill | None = None
        # Whether the body of the last `fill` is known to be in relaxed form (`mime.is_single_spaced`).
        self.is_single_spaced = False

    def fill(self, values: Mapping[str, Any], until: float | None = None) -> bytes:
        """Return the body for one recipient in quoted-printable.

        `until` is the deadline in processor time of this thread, by default `merge_limits.render_deadline()`. Raises
        MergeError if a value cannot be filled in, the result is too long, or the deadline is over.
        """
        until = merge_limits.render_deadline() if until is None else until
        self.is_single_spaced = True
        if self._compiled.pieces is not None:
            try:
                body = self._fill_pieces(self._compiled.pieces, values, FillBudget(until))
                self.is_single_spaced &= self._is_single_spaced
            except (NeedsLiquid, LiquidError, TypeError, ValueError):
                pass  # Liquid renders the template below, or raises the error
            else:
                if len(body) <= MAX_OUTPUT_BYTES:
                    return body if body and not body.endswith(SOFT_BREAK) else body + b"\r\n"
        self.is_single_spaced = False
        return encode_quoted_printable(self._compiled.render(values, until))

    def _fill_pieces(self, pieces: list[Piece], values: Mapping[str, Any], budget: FillBudget) -> bytes:
        self._fill_count += 1
        if self._fill_count == _FILLS_BEFORE_GENERATING:
            with contextlib.suppress(NeedsLiquid):
                self._generated = _FillGenerator(self).generate(pieces)
        return self._generated(values, budget) if self._generated else self._interpret(pieces, values, budget)

    def _interpret(self, pieces: list[Piece], values: Mapping[str, Any], budget: FillBudget) -> bytes:
        """Return the same bytes as the generated function."""
        parts: list[bytes] = []
        for piece in _join_texts(pieces):
            if isinstance(piece, str):
                parts.append(self.encode_text(piece))
            elif isinstance(piece, Slot):
                parts.append(self.build_encoder(piece)(piece.variable.look_up(values), budget))
                budget.take(len(parts[-1]))
            else:
                branch = piece.pieces if is_present(piece.variable.look_up(values)) else piece.else_pieces
                parts.append(self._interpret(branch, values, budget))
        return b"".join(parts)

    def encode_text(self, text: str) -> bytes:
        """Return a text between merge tags, encoded."""
        encoded = encode_fragment(text)
        self._is_single_spaced &= is_single_spaced(encoded)
        return encoded

    def build_encoder(self, slot: Slot) -> _Encoder:
        """Return a function that encodes a value of a slot as quoted-printable, enclosed by soft line breaks."""
        is_link = _is_message_value(slot)
        # The encodings of links leave plain ones as they are.
        may_be_plain = is_link or all(name in _FILTERS_WITHOUT_EFFECT for name, _ in slot.name[1:])
        encode_plain = _encode_plain_url if is_link else _encode_plain_text

        def encode(value: Any, budget: FillBudget) -> bytes:
            if may_be_plain and type(value) is str and len(value) <= _MAX_PLAIN_CHARACTERS:
                plain = encode_plain(value)
                if plain is not None:
                    return plain
            encoded = encode_fragment(slot.to_text(value))
            budget.take(0)
            if not is_single_spaced(encoded):
                self.is_single_spaced = False
            return encoded

        return encode

    def build_caching_encoder(self, slot: Slot, cache: dict[str, bytes]) -> _Encoder:
        """Return an encoder of a slot that adds the first values to `cache`.

        A value that is not single-spaced is not cached, because its encoder has to change `is_single_spaced` each time.
        """
        encode = self.build_encoder(slot)

        def encode_and_cache(value: Any, budget: FillBudget) -> bytes:
            encoded = encode(value, budget)
            if (
                len(cache) < _MAX_CACHED_VALUES
                and type(value) is str
                and len(encoded) <= _MAX_CACHED_BYTES
                and self._cached_count < _MAX_CACHED_OF_BODY
                and is_single_spaced(encoded)
            ):
                self._cached_count += 1
                cache[value] = encoded
            return encoded

        return encode_and_cache


@lru_cache(maxsize=_MAX_CACHED_VALUES)
def _encode_plain_text(value: str) -> bytes | None:
    """Return a text with its soft break, or None if it needs encoding; HTML and text of a message share many values."""
    return value.encode() + SOFT_BREAK if PLAIN_TEXT.fullmatch(value) else None


@lru_cache(maxsize=_MAX_CACHED_VALUES)
def _encode_plain_url(value: str) -> bytes | None:
    """Return a URL or token as `_encode_plain_text` does."""
    return value.encode() + SOFT_BREAK if _PLAIN_URL.fullmatch(value) else None


def _is_token(slot: Slot) -> bool:
    """Return whether a slot is the token of tracked links: its characters never need encoding."""
    return slot.name[0] in _TOKENS and _is_message_value(slot)


def _is_message_value(slot: Slot) -> bool:
    """Return whether a slot is a token or link of the message: no other recipient has it, so it is not cached."""
    return slot.name[0] in _MESSAGE_VALUES and all(part[0] in ENCODINGS for part in slot.name[1:])


def _join_texts(pieces: list[Piece]) -> Iterator[Piece]:
    """Yield the pieces, with adjacent texts joined into one piece."""
    for is_text, group in groupby(pieces, lambda piece: isinstance(piece, str)):
        if not is_text:
            yield from group
        elif text := "".join(str(piece) for piece in group):
            yield text


class _FillGenerator:
    """A generator of the Python function that fills one body.

    An interpreter of the pieces would take twice the time, and this is most of the time of rendering an email. The
    function contains only names made here, and no text of the template:

        def fill(values, budget):
            size = 0
            p1 = values.get(k1)                 # the root `contact`
            if type(p1) is not dict: p1 = as_parent(p1)
            v = p1.get(k2, u2)                  # the value of `contact.first_name`
            s1 = c1.get(v) if type(v) is str else None
            if s1 is None: s1 = e1(v, budget)
            size += len(s1) * 2
            if size > limit: raise NeedsLiquid
            return join((t1, s1, t2, s1, t3))
    """

    def __init__(self, body: EncodedBody) -> None:
        self._body = body
        self._names: dict[str, Any] = {
            "as_parent": as_parent, "is_present": is_present, "join": b"".join, "limit": MAX_OUTPUT_BYTES,
            "NeedsLiquid": NeedsLiquid, "soft_break": SOFT_BREAK,
        }  # fmt: skip
        self._lines: list[str] = []
        self._part_count = 0
        self._parents: dict[tuple[str, ...], str] = {(): "values"}  # the variable of each path that leads to values
        self._slots: dict[tuple[Any, ...], str] = {}

    def generate(self, pieces: list[Piece]) -> _Fill:
        """Return the function that writes a body of these pieces with the values of a recipient.

        Raises NeedsLiquid for more than `_MAX_PARTS` slots and conditions.
        """
        result = self._add_pieces(pieces, frozenset(), 1)
        head = ["def fill(values, budget):", " size = 0"]
        for path, name in self._parents.items():
            if path:
                head.append(f" {name} = {self._parents[path[:-1]]}.get({self._add_name('k', path[-1])})")
                head.append(f" if type({name}) is not dict: {name} = as_parent({name})")
        source = "\n".join((*head, *self._lines, f" return {result}"))
        exec(source, self._names)  # noqa: S102  The source contains only names and numbers made here
        fill: _Fill = self._names["fill"]
        return fill

    def _count_part(self) -> None:
        self._part_count += 1
        if self._part_count > _MAX_PARTS:
            raise NeedsLiquid

    def _add_name(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self._names)}"
        self._names[name] = value
        return name

    def _add_line(self, depth: int, line: str) -> None:
        self._lines.append(" " * depth + line)

    def _add_pieces(self, pieces: list[Piece], known: frozenset[str], depth: int) -> str:
        """Add the lines that encode the values of pieces, and return the expression of the encoded pieces together.

        `known` are the slots that earlier lines have encoded.
        """
        parts: list[str] = []
        for piece in _join_texts(pieces):
            if isinstance(piece, str):
                parts.append(self._add_name("t", self._body.encode_text(piece)))
            elif isinstance(piece, Slot):
                slot = self._add_slot(piece, depth, known)
                known |= {slot}
                parts.append(slot)
            else:
                parts.append(self._add_condition(piece, depth, known))
        counts = Counter(part for part in parts if part.startswith("s"))
        if counts:
            self._add_line(depth, f"size += {' + '.join(f'len({slot}) * {count}' for slot, count in counts.items())}")
            self._add_line(depth, "if size > limit: raise NeedsLiquid")
        return f"join(({', '.join(parts)},))" if parts else "b''"

    def _add_slot(self, slot: Slot, depth: int, known: frozenset[str]) -> str:
        """Add the lines that encode the value of a slot unless it is known; return the variable of its bytes."""
        name = self._slots.get(slot.name)
        if name is None:
            self._count_part()
            name = self._slots[slot.name] = f"s{len(self._slots)}"
            if _is_message_value(slot):
                self._names[f"e{name}"] = self._body.build_encoder(slot)
            else:
                cache = self._names[f"c{name}"] = dict[str, bytes]()
                self._names[f"e{name}"] = self._body.build_caching_encoder(slot, cache)
        if name not in known:
            self._add_line(depth, f"v = {self._add_lookup(slot.variable)}")
            if _is_token(slot):
                self._add_line(depth, f"{name} = v.encode() + soft_break if type(v) is str else e{name}(v, budget)")
            elif _is_message_value(slot):
                self._add_line(depth, f"{name} = e{name}(v, budget)")
            else:
                self._add_line(depth, f"{name} = c{name}.get(v) if type(v) is str else None")
                self._add_line(depth, f"if {name} is None: {name} = e{name}(v, budget)")
        return name

    def _add_condition(self, condition: ConditionPiece, depth: int, known: frozenset[str]) -> str:
        """Add the lines that encode the branch of a condition that applies; return the variable of its bytes."""
        self._count_part()
        name = self._add_name("x", None)
        for line, pieces in (
            (f"if is_present({self._add_lookup(condition.variable)}):", condition.pieces),
            ("else:", condition.else_pieces),
        ):
            self._add_line(depth, line)
            self._add_line(depth + 1, f"{name} = {self._add_pieces(pieces, known, depth + 1)}")
        return name

    def _add_lookup(self, variable: Variable) -> str:
        """Return the expression of the value of a variable."""
        path, undefined = variable
        for length in range(1, len(path)):
            self._parents.setdefault(path[:length], f"p{len(self._parents)}")
        return f"{self._parents[path[:-1]]}.get({self._add_name('k', path[-1])}, {self._add_name('u', undefined)})"
