"""MIME encoding: a strict parser reads back what was written."""

import email
import re
from email import policy
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.utils import parseaddr
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.sending.delivery import mime
from appliance.sending.delivery.mime import Mail

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
BASE = Mail("AbC123-_x@example.org", 1_780_000_000.0, ("Acme", "news@example.org"), "ann@example.net", "Hi", "Hi", None)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
PIECES = [
    ".",
    "..",
    "From ",
    "\n",
    "\n.",
    "\r\n",
    "\r",
    " ",
    "\t",
    "=",
    "=\n",
    "é",
    "😀",
    "<p>",
    "word ",
    "x" * 75,
    "y" * 200,
]
BODY = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=60).map("".join)


def parse(raw: bytes) -> EmailMessage:
    """Parse a message with the standard library's strict parser."""
    return cast(EmailMessage, email.message_from_bytes(raw, policy=policy.default))


def display_name(raw: bytes) -> str:
    """Return the sender's name as mail programs show it.

    White space between encoded words is ignored (RFC 2047, 6.2).
    """
    name, _ = parseaddr(email.message_from_bytes(raw)["From"])
    return str(make_header(decode_header(name)))


def one_line(text: str) -> str:
    """Return what a header keeps of a text: one line without control characters."""
    return CONTROL.sub(" ", text).strip()


def split_lines(raw: bytes) -> list[bytes]:
    """Split a message at CRLF, after checking that there is no other line break."""
    assert raw.endswith(b"\r\n")
    assert b"\r" not in raw.replace(b"\r\n", b"") and b"\n" not in raw.replace(b"\r\n", b"")
    return raw.split(b"\r\n")


def get_text(part: Any) -> str:
    """Return the text of a part with LF line ends."""
    return cast(str, part.get_content()).replace("\r\n", "\n")


def is_same_text(body: str, written: str) -> bool:
    """Return whether a body is unchanged, apart from the kind of its line ends and one added at the end."""
    normalized = written.replace("\r\n", "\n").replace("\r", "\n")
    return body in (normalized, normalized + "\n")


@given(subject=ANY)
@example(subject="=?utf-8?q?hi?=")
@example(subject="x" * 998)
@example(subject="word " * 190)
@example(subject="å" * 998)
@example(subject="😀" * 200)
@example(subject="a\u3000b")
def test_subjects_round_trip(subject: str) -> None:
    """A subject is read back as one line of the same characters."""
    raw = mime.write(BASE._replace(subject=subject))
    assert parse(raw)["Subject"] == one_line(subject)


@given(name=ANY)
@example(name='O"Brien, \\ Ltd. <x@y>')
@example(name="=?utf-8?b?aGk=?=")
@example(name="Zoë")
@example(name="J. R. (Bob) Dobbs; @home: [x]")
@example(name="n" * 255)
def test_display_names_round_trip(name: str) -> None:
    """A display name is read back, but for at signs, and the From address is the given one."""
    raw = mime.write(BASE._replace(sender=(name, "news@example.org")))
    assert [address.addr_spec for address in parse(raw)["From"].addresses] == ["news@example.org"]
    read, given_name = (re.sub("[@＠﹫]", " at ", text).split() for text in (display_name(raw), one_line(name)))
    assert read == given_name


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("Café <boss@bank.example>", "Café <boss at bank.example>"),
        ('a" boss@bank.example, "b', 'a" boss at bank.example, "b'),
        ("Café boss ＠ bank.example,", "Café boss at bank.example,"),
        ("boss@bank.example", "boss@bank.example"),
        ("Shop (boss@bank.example)", "Shop (boss@bank.example)"),
    ],
)
def test_no_program_reads_an_address_in_a_display_name(name: str, written: str) -> None:
    """Programs that decode a header before they parse it, or know no escapes, read the From address only (T37)."""
    assert " ".join(display_name(mime.write(BASE._replace(sender=(name, "news@example.org")))).split()) == written


@given(text=BODY, html=BODY)
@example(text=".\n..\n.x\r\n", html="From me\n.")
@example(text="--=_AbC123-_x\r\n--=_AbC123-_x--\r\n", html="--=_AbC123-_x--")
@example(text="end in space \nand tab\t", html="x" * 3000)
@example(text="", html="")
@example(text="\x00\x0b\x0c\x1c\x85\u2028", html="é" * 1000)
def test_bodies_round_trip(text: str, html: str) -> None:
    """Text and HTML are read back as alternatives of one message, text first."""
    message = parse(mime.write(BASE._replace(text=text, html=html)))
    assert message.get_content_type() == "multipart/alternative" and not message.defects
    parts = list(message.iter_parts())
    assert [part.get_content_type() for part in parts] == ["text/plain", "text/html"]
    assert is_same_text(get_text(parts[0]), text)
    assert is_same_text(get_text(parts[1]), html)


@given(text=BODY)
def test_a_text_message_round_trips(text: str) -> None:
    """A message without HTML is one part of plain text that is read back."""
    message = parse(mime.write(BASE._replace(text=text)))
    assert message.get_content_type() == "text/plain"
    assert is_same_text(get_text(message), text)


@given(subject=ANY, name=ANY, text=BODY, html=BODY)
@example(subject="a", name="b", text="a\n.b\n..c\nFrom d\n.", html=".x\n" + "=" * 75 + "\n.\n\n.")
@example(subject="x" * 998, name="y" * 255, text="z" * 5000, html=".\n" * 50)
@example(subject="😀" * 998, name="é" * 255, text="😀" * 500, html="From \n" * 9)
def test_lines_keep_the_limits_of_smtp(subject: str, name: str, text: str, html: str) -> None:
    """Lines end in CRLF, have at most 998 bytes (78 in bodies) and are ASCII.

    In bodies none begins with a dot or `From `.
    """
    mail = BASE._replace(subject=subject, sender=(name, "news@example.org"), text=text, html=html)
    head, _, body = mime.write(mail).partition(b"\r\n\r\n")
    assert head.isascii() and body.isascii()
    assert all(len(line) <= 998 for line in split_lines(head + b"\r\n"))
    body_lines = split_lines(body)
    assert all(len(line) <= 78 for line in body_lines)
    assert not any(line.startswith((b".", b"From ")) for line in body_lines)


@given(subject=ANY, name=ANY)
@example(subject="é" * 300, name="😀" * 60)
@example(subject="a" * 300, name="b" * 200)
def test_encoded_words_have_at_most_75_characters(subject: str, name: str) -> None:
    """No encoded word is longer than 75 characters and no character is split between two (RFC 2047, 2 and 5)."""
    header_bytes = mime.write(BASE._replace(subject=subject + "é", sender=(name + "é", "a@b.example"))).partition(
        b"\r\n\r\n"
    )[0]
    words = [word for word in re.split(rb"[\s]", header_bytes) if word.startswith(b"=?") and word.endswith(b"?=")]
    assert words and all(len(word) <= 75 for word in words)
    decoded = [decode_header(word.decode())[0] for word in words]
    assert all(isinstance(part.decode("utf-8"), str) for part, charset in decoded if charset == "utf-8")


def test_lone_surrogates_in_a_body_are_replaced() -> None:
    """Half of a surrogate pair becomes a question mark instead of an error."""
    message = parse(mime.write(BASE._replace(text="a\ud800b", html="<p>\udfff</p>")))
    assert "a?b" in get_text(next(iter(message.iter_parts())))


@pytest.mark.parametrize("length", [60, 300, 900])
def test_long_unsubscribe_urls_are_not_encoded(length: int) -> None:
    """A List-Unsubscribe URL of any length is written on one line, never as an encoded word."""
    url = "<https://mail.example.org/u/" + "A-_9" * (length // 4) + ">"
    raw = mime.write(BASE._replace(headers=(("List-Unsubscribe", url),)))
    assert f"\r\nList-Unsubscribe: {url}\r\n".encode() in raw
    assert all(len(line) <= 998 for line in split_lines(raw))


def test_the_date_header_is_the_time_of_sending() -> None:
    """The Date header has the time of sending."""
    assert parse(mime.write(BASE))["Date"].datetime.timestamp() == 1_780_000_000
