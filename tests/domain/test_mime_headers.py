"""Header injection (T07): nothing that a person or a contact writes makes, ends or changes a header."""

import email
from email import policy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs import merge
from appliance.sending.delivery import mime
from appliance.sending.delivery.mime import Mail
from appliance.sending.messages import compose
from appliance.sending.messages.compose import MessageSource, Sender
from appliance.sending.messages.shared_content import EncodedMessage
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
    """Read a mail with both readers of the standard library and compare its headers with the plan."""
    for rules in (policy.default, policy.compat32):
        message = email.message_from_bytes(raw, policy=rules)
        assert message.keys() == PLANNED
        assert not message.defects
    message = email.message_from_bytes(raw, policy=policy.default)
    assert [one.addr_spec for one in message["From"].addresses] == ["news@example.org"]
    assert [one.addr_spec for one in message["To"].addresses] == ["ann@example.net"]
    assert len(list(message.iter_parts())) == 2


def mail(subject: str = "Hi", name: str | None = "Acme") -> Mail:
    """Make a mail that differs from a plain one only in what is tried."""
    return Mail("x1@example.org", 0.0, (name, "news@example.org"), "ann@example.net", subject, "text", "<p>html</p>")


@pytest.mark.parametrize("evil", EVIL)
def test_a_subject_makes_no_header(evil: str) -> None:
    """A hostile subject leaves exactly the planned headers, once each, and one body."""
    raw = mime.write(mail(subject=evil))
    check_headers(raw)
    assert b"\nBcc" not in raw and b"\nX-Evil" not in raw


@pytest.mark.parametrize("evil", EVIL)
def test_a_display_name_makes_no_header(evil: str) -> None:
    """A hostile sender name leaves exactly the planned headers and the one From address."""
    raw = mime.write(mail(name=evil))
    check_headers(raw)
    assert b"\nBcc" not in raw and b"\nX-Evil" not in raw


@pytest.mark.parametrize("evil", [text for text in EVIL if "=?" in text])
def test_what_looks_encoded_is_read_back_as_written(evil: str) -> None:
    """Text that looks like an encoded word is shown as that text, so that it cannot decode to something else."""
    written = " ".join(evil.replace("\r\n", " ").split())
    message = email.message_from_bytes(mime.write(mail(subject=evil)), policy=policy.default)
    assert " ".join(message["Subject"].split()) == written


@pytest.mark.parametrize("evil", EVIL)
def test_merged_values_make_no_header(evil: str, home: Home) -> None:
    """Contact data merged into subject and sender name leaves exactly the planned headers (second-order T07)."""
    content = compose.compile_message(
        MessageSource("Dear {{ first_name }}", "<p>x</p>", from_name="{{ first_name }} at Acme")
    )
    sender = Sender("news@example.org", None, None)
    raw = mime.write(EncodedMessage(content).build_mail({"first_name": evil}, sender, 7, "ann@example.net", 0.0, ()))
    check_headers(raw)
    assert b"\nBcc" not in raw and b"\nX-Evil" not in raw


@given(st.text(st.sampled_from('\r\n\t :=?\x0b\x85\u2028abB<>@,"\\é'), max_size=60))
def test_no_mixture_makes_a_header(evil: str) -> None:
    """No mixture of the signs that headers are made of adds a header, in subject or name."""
    check_headers(mime.write(mail(subject=evil, name=evil)))


@pytest.mark.parametrize("breaks", [sign for sign in BREAKS if sign != "\r\n "])
@pytest.mark.parametrize("name", ["Reply-To", "X-Note"])
def test_a_value_that_could_not_be_written_safely_is_refused(name: str, breaks: str) -> None:
    """A line break in any header that is written as it is stops the message instead of reaching the wire."""
    evil = f"a@b.example{breaks}Bcc: v@evil.example"
    changed = mail()._replace(reply_to=evil) if name == "Reply-To" else mail()._replace(headers=((name, evil),))
    with pytest.raises(ValueError, match="line break"):
        mime.write(changed)


@pytest.mark.parametrize("evil", EVIL)
def test_a_list_name_makes_no_header(evil: str, home: Home) -> None:
    """A hostile list name stays inside List-Id, beside the id of the list."""
    headers = compose.build_marketing_headers(7, 3, evil, "list-5", "example.org", 1)
    raw = mime.write(mail()._replace(headers=headers))
    message = email.message_from_bytes(raw, policy=policy.default)
    extra = [
        "List-Unsubscribe",
        "List-Unsubscribe-Post",
        "List-Id",
        "Feedback-ID",
        "X-Auto-Response-Suppress",
        "Precedence",
    ]
    assert message.keys() == [*PLANNED[:5], *extra, *PLANNED[5:]]
    assert message["List-Id"].endswith("<list-5.example.org>")


@given(st.text(max_size=100))
def test_a_header_context_is_one_line(value: str) -> None:
    """What a header template renders is one line without control characters, whatever the value."""
    found = merge.compile_template("{{ x }}!", "header").render({"x": value})
    assert not any(ord(sign) < 32 or 0x7F <= ord(sign) <= 0x9F or sign in "\u2028\u2029" for sign in found)
