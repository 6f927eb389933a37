"""Header injection (T07): no text of a user or contact adds, ends or changes a header."""

import email
from email import policy
from email.header import decode_header, make_header

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs import merge
from appliance.sending.delivery import mime
from appliance.sending.delivery.mime import Mail
from appliance.sending.messages import compose
from appliance.sending.messages.compose import MessageSource, Sender
from appliance.sending.messages.encoded_email import EncodedMessage
from tests.domain.home import Home

PLANNED = ["Date", "From", "To", "Message-ID", "Subject", "MIME-Version", "Content-Type"]
BREAKS = ["\r", "\n", "\r\n", "\r\n ", "\n\t", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\0"]
EVIL = [
    *(f"Hi{breaks}Bcc: v@evil.example" for breaks in BREAKS),
    "Hi\r\n\r\n<script>body</script>",
    "Hi\r\n \r\nBcc: v@evil.example",
    "\r\nBcc: v@evil.example",
    "Hi%0d%0aBcc: v@evil.example",
    "=?utf-8?q?hi=0D=0ABcc:_v@evil.example?=",
    "=?utf-8?b?aGkNCkJjYzogdkBldmlsLmV4YW1wbGU=?=",
    "=?utf-8?q?hi?=\r\n =?utf-8?q?=0D=0ABcc:_v@evil.example?=",
    "=?utf-8?q?a?==?utf-8?q?=0D=0AX-Evil:_1?=",
    "=?utf-7?q?+AA0ACg-Bcc:_v?=",
    'x" <v@evil.example>, "y',
    "x <v@evil.example>, y",
    "x>, <v@evil.example",
    "\\\r\nX-Evil: 1",
    "é\r\nX-Evil: 1",
    "=?",
    "?==?",
]


def check_headers(raw: bytes) -> None:
    """Parse a message with both policies of the standard library and check its headers, addresses and parts."""
    for rules in (policy.default, policy.compat32):
        message = email.message_from_bytes(raw, policy=rules)
        assert message.keys() == PLANNED
        assert not message.defects
    message = email.message_from_bytes(raw, policy=policy.default)
    assert [address.addr_spec for address in message["From"].addresses] == ["news@example.org"]
    assert [address.addr_spec for address in message["To"].addresses] == ["ann@example.net"]
    assert len(list(message.iter_parts())) == 2


def build_mail(subject: str = "Hi", name: str | None = "Acme") -> Mail:
    """Build a mail whose subject and sender name may be hostile."""
    return Mail("x1@example.org", 0.0, (name, "news@example.org"), "ann@example.net", subject, "text", "<p>html</p>")


@pytest.mark.parametrize("evil", EVIL)
def test_a_subject_cannot_add_headers(evil: str) -> None:
    """A hostile subject leaves exactly the expected headers, once each."""
    raw = mime.write(build_mail(subject=evil))
    check_headers(raw)
    assert b"\nBcc" not in raw and b"\nX-Evil" not in raw


@pytest.mark.parametrize("evil", EVIL)
def test_a_display_name_cannot_add_headers(evil: str) -> None:
    """A hostile sender name leaves exactly the expected headers and one From address."""
    raw = mime.write(build_mail(name=evil))
    check_headers(raw)
    assert b"\nBcc" not in raw and b"\nX-Evil" not in raw


@pytest.mark.parametrize("evil", [text for text in EVIL if "=?" in text])
def test_text_like_an_encoded_word_is_not_decoded(evil: str) -> None:
    """A subject that looks like an encoded word is read back as the same text."""
    expected = " ".join(evil.replace("\r\n", " ").split())
    message = email.message_from_bytes(mime.write(build_mail(subject=evil)), policy=policy.default)
    assert " ".join(message["Subject"].split()) == expected


@pytest.mark.parametrize("evil", EVIL)
def test_merged_values_cannot_add_headers(evil: str, home: Home) -> None:
    """Contact data in the subject and sender name leaves exactly the expected headers (second-order T07)."""
    content = compose.compile_message(
        MessageSource("Dear {{ first_name }}", "<p>x</p>", from_name="{{ first_name }} at Acme")
    )
    sender = Sender("news@example.org", None, None)
    raw = mime.write(EncodedMessage(content).build_mail({"first_name": evil}, sender, 7, "ann@example.net", 0.0, ()))
    check_headers(raw)
    assert b"\nBcc" not in raw and b"\nX-Evil" not in raw


@given(st.text(st.sampled_from('\r\n\t :=?\x0b\x85\u2028abB<>@,"\\é'), max_size=60))
def test_random_header_characters_cannot_add_headers(evil: str) -> None:
    """No mixture of line breaks, colons and encoded words adds a header through the subject or the name."""
    check_headers(mime.write(build_mail(subject=evil, name=evil)))


@pytest.mark.parametrize("breaks", [sign for sign in BREAKS if sign != "\r\n "])
@pytest.mark.parametrize("name", ["Reply-To", "X-Note"])
def test_headers_with_line_breaks_are_rejected(name: str, breaks: str) -> None:
    """A line break in a header that is written unencoded raises ValueError."""
    evil = f"a@b.example{breaks}Bcc: v@evil.example"
    hostile_mail = (
        build_mail()._replace(reply_to=evil) if name == "Reply-To" else build_mail()._replace(headers=((name, evil),))
    )
    with pytest.raises(ValueError, match="line break"):
        mime.write(hostile_mail)


@pytest.mark.parametrize("evil", EVIL)
def test_a_list_name_cannot_add_headers(evil: str, home: Home) -> None:
    """A hostile list name stays inside List-Id, before the id of the list."""
    headers = compose.build_marketing_headers("https://a.example", 7, 3, evil, "list-5", "example.org", 1)
    raw = mime.write(build_mail()._replace(headers=headers))
    message = email.message_from_bytes(raw, policy=policy.default)
    marketing_headers = [
        "List-Unsubscribe",
        "List-Unsubscribe-Post",
        "List-Id",
        "Feedback-ID",
        "X-Auto-Response-Suppress",
        "Precedence",
    ]
    assert message.keys() == [*PLANNED[:5], *marketing_headers, *PLANNED[5:]]
    assert message["List-Id"].endswith("<list-5.example.org>")


@pytest.mark.parametrize("name", ["x" * 5_000, "x " * 2_500, '"' * 600, "é" * 2_000, "\\" * 899])
def test_long_display_names_are_folded(name: str) -> None:
    """No line of a header is longer than a server accepts (RFC 5322, 2.1.1), and the name stays whole."""
    written = mime.write(Mail("a@example.org", 0, (name, "a@example.org"), "b@example.org", "Hi", "Hi", None))
    head = written.partition(b"\r\n\r\n")[0]
    assert max(map(len, head.split(b"\r\n"))) <= 998
    # The parser of the policy `default` puts spaces between encoded words
    decoded = str(make_header(decode_header(email.message_from_bytes(written)["From"])))
    assert decoded == f"{name.strip()} <a@example.org>"


@given(st.text(max_size=100))
def test_header_templates_render_one_line(value: str) -> None:
    """The output has no control characters or line breaks, whatever the value."""
    output = merge.compile_template("{{ x }}!", "header").render({"x": value})
    assert not any(ord(sign) < 32 or 0x7F <= ord(sign) <= 0x9F or sign in "\u2028\u2029" for sign in output)
