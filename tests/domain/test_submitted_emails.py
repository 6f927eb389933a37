"""Emails that programs submit: what of their bytes is sent, which are refused, repeats, and their end."""

import time
from email import message_from_bytes, policy
from email.utils import getaddresses, parseaddr

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.accounts import access
from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.core import addresses
from appliance.inbound import submission
from appliance.sending.messages import attachments, message_source, raw_mime, submitted
from appliance.sending.messages.ledger import get_row
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.sender_headers import Malformed
from appliance.sending.transports import mime_parts
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import ApiKey, Message
from tests.domain.home import BY_API, Home
from tests.kit.timeouts import extend_timeout

BODY = (
    b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/html; "
    b"charset=iso-8859-1\r\n\r\n<p>Gr\xfc\xdfe  \t </p>\r\n.leading dot\r\n--x\r\nContent-Type: application/pdf; "
    b'name="a b.pdf"\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: attachment; filename="a b.pdf"\r\n'
    b"\r\naGVsbG8=\r\n--x--\r\n"
)
HEAD = b"From: Shop <shop@bakery.example>\r\nTo: ann@example.org\r\nSubject: =?utf-8?q?Caf=C3=A9?=\r\n"
IDENTIFIED = b"Message-ID: <1@shop>\r\nDate: Fri, 27 Nov 2026 10:00:00 +0000\r\n"


@pytest.fixture
def key_id(home: Home) -> int:
    """Return the id of an API key of the account."""
    home.configure(
        email__transport="relay", email__relay__host="mail.example.com", email__allow_unverified_domains=True
    )
    transactions.write(access.issue_key, home.account_id, "shop", "send")
    return int(ApiKey.get().id)


def submit(home: Home, content: bytes, *recipients: str) -> submitted.Queued:
    """Queue an email with the only key for recipients, as the listener does."""
    email = raw_mime.parse(content, len(recipients))
    parsed = [addresses.parse_email(recipient) for recipient in recipients]
    key_id, sha256 = int(ApiKey.get().id), submitted.store_large(email)
    prepared = submitted.Submission(
        home.account_id, key_id, False, email, (*email.senders, "www@bakery.example")[0], parsed, sha256
    )
    queued = transactions.write(submitted.queue, prepared)
    if sha256 is not None:
        attachments.release_raw(sha256)
    return queued


def sent_bytes(message: Message) -> bytes:
    """Return the bytes that a message is sent with."""
    return MessagePreparer().prepare(get_row(message.id)).envelope.content


@pytest.mark.usefixtures("key_id")
def test_an_email_is_sent_byte_for_byte(home: Home) -> None:
    """Nothing changes in an email that has its Message-ID and Date, whatever its encoding and spaces are."""
    content = HEAD + IDENTIFIED + BODY
    [message] = submit(home, content, "ann@example.org").messages
    prepared = MessagePreparer().prepare(get_row(message.id))
    assert prepared.envelope.content == content
    assert (prepared.internet_message_id, message.subject, message.sender) == ("1@shop", "Café", "shop@bakery.example")
    assert message_source.get_source(home.account_id, message.id) == content
    assert "Grüße" in message_source.get_html(home.account_id, message.id)
    [file] = attachments.list_files(message.id)
    assert (file.filename, file.content_type, file.size) == ("a b.pdf", "application/pdf", 5)
    assert b"".join(attachments.get_file(home.account_id, message.id, file.id)[1]) == b"hello"


@pytest.mark.usefixtures("key_id")
def test_removed_and_added_headers(home: Home) -> None:
    """Bcc and our headers are removed with their continuation lines; Message-ID, Date and From are added, all once."""
    head = (
        b"Subject: Hi\r\nBCC : secret@example.org,\r\n second@example.org\r\nX-Campanero-Tag: welcome\r\n"
        b'X-Campanero-Data: {"order": 7}\r\nReturn-Path: <x@y.example>\r\nResent-Bcc: third@example.org\r\n'
        b"X-SMTPAPI: {}\r\nX-Original-To: b+00@bounce.example\r\nMessage-ID: \r\n"
    )
    queued = submit(home, head + b"\r\nBcc: stays in the text\r\n", "ann@example.org", "secret@example.org")
    first, second = (sent_bytes(message) for message in queued.messages)
    assert first == second and first == sent_bytes(queued.messages[0])
    mail = message_from_bytes(first)
    assert sorted(mail.keys()) == ["Date", "From", "Message-ID", "Subject"] and b"secret@" not in first
    assert mail["From"] == "www@bakery.example" and mail.get_payload() == "Bcc: stays in the text\r\n"
    assert [message.tags for message in queued.messages] == [{"tag": "welcome"}] * 2
    assert {scalar("SELECT data FROM message_content")} == {'{"order":7}'}
    assert rows("SELECT kind FROM message_content") == [("bcc",), ("bcc",)]


REFUSED = (
    b"From: a@x.example\r\nFrom: b@x.example\r\n\r\n", b"From: a@x.example, \r\n\r\n", b"From: A <a@x.example\r\n\r\n",
    b"From: a@x.example (<b@y.example>)\r\n\r\n", b"From: group: a@x.example;\r\n\r\n", b"From: <>\r\n\r\n",
    b"From: <a@x.example> <b@x.example>\r\n\r\n", b"From: a@x.example\r\nFr\xc3\xb6m: b\r\n\r\n", b"no header\r\n",
    b"From: a@x.example\r\n \r\nSubject: x\r\n\r\n", b" From: a@x.example\r\n\r\n", b"\r\nFrom: a@x.example\r\n\r\n",
    b"From: a@x.example\nBcc: b@x.example\r\n\r\n", b"From: a@x.example\r\n\r\na\rb\r\n", b"Subject: x\r\n\r\na\0\r\n",
    b"From: a@x.example\r\n\r\na\n.\nb\r\n", b"From: a@x.example\r\nMessage-ID: <1>\r\nMessage-ID: <2>\r\n\r\n",
    b"X-Campanero-Class: spam\r\n\r\n", b"X-Campanero-Data: [1]\r\n\r\n", b"X-Campanero-Data: {\r\n\r\n",
    b"X-Campanero-Data: " + b'{"a":' * 3_000 + b"1" + b"}" * 3_000 + b"\r\n\r\n", b"A: b\r\n" * 1_001 + b"\r\n",
    b"X-Campanero-Tag: " + b"a" * 101 + b"\r\n\r\n", b"X-Campanero-Tag: a\r\n" * 11 + b"\r\n",
    b"Received: x\r\n" * 51 + b"\r\n", b"Content-Type: multipart/mixed\r\n" * 101 + b"\r\n",
    b"From: a@x.example\r\n\r\n" + b"Content-Type: text/plain; name=a\r\n" * 1_001,
    b"Content-Type: text/plain" + b";a" * 65 + b"\r\n\r\n",
    b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Disposition: a" + b"\r\n ;" * 65 + b"\r\n\r\n",
    b"Content-Disposition: attachment; filename=" + b"\r\n aaaaaaa" * 500 + b"\r\n\r\n",
    b"Content-Transfer-Encoding: " + b"(" * 5_000 + b"\r\n\r\n", b"Content-ID: " + b"<" * 5_000 + b"\r\n\r\n",
    b"Subject: " + b"a" * 300_000 + b"\r\n\r\n", b"Subject: x\r\n\r\n" + b"\r\n" * 1_000_001,
)  # fmt: skip


@pytest.mark.parametrize("content", REFUSED, ids=lambda content: repr(content[:40]))
def test_ambiguous_emails_are_refused(content: bytes) -> None:
    """What programs would read in different ways, or take long to read, is refused with a reason (T07, T33)."""
    with pytest.raises(Malformed):
        raw_mime.parse(content)


@pytest.mark.parametrize(
    ("field", "extension"),
    [
        (b'Content-Disposition: attachment; filename="setup.exe"', "exe"),
        (b"content-type: application/octet-stream;\r\n\tname=SETUP.EXE", "exe"),
        (b"Content-Disposition: attachment; filename*=utf-8''run%2Ebat", "bat"),
        (b'Content-Disposition: attachment; filename*0="a.j"; filename*1=s', "js"),
        (b'Content-Disposition: attachment; filename="=?utf-8?q?a=2Evbs?="', "vbs"),
        (b'Content-Disposition: attachment; filename="a.pdf.scr. "', "scr"),
        (b'Content-Disposition: attachment; filename="exe.pdf"', None),
        (b"Content-Disposition: attachment; filename*=x''%ff", None),
        (b'Content-Type: text/html\r\n\r\n<a href="setup.exe" name="a.exe">', None),
    ],
)
def test_files_that_mail_servers_reject(field: bytes, extension: str | None) -> None:
    """A file that the API refuses is refused here, too, with its type, also in an attached email."""
    part = b"--x\r\n" + field + b"\r\n\r\nx\r\n--x--\r\n"
    kind = b"Content-Type: multipart/mixed; boundary=x\r\n\r\n"
    attached = b"--y\r\nContent-Type: message/rfc822\r\n\r\n" + kind + part + b"--y--\r\n"
    for content in (HEAD + kind + part, HEAD + kind.replace(b"=x", b"=y") + attached):
        if extension is None:
            raw_mime.parse(content)
        else:
            with pytest.raises(raw_mime.FileRefused, match=rf"\(\.{extension}\)"):
                raw_mime.parse(content)


@pytest.mark.parametrize(
    ("written", "senders"),
    [
        ("shop@bakery.example", ["shop@bakery.example"]),
        ("Shop (EU), <a@b.example>", None),
        ('"Bank\r\n <ceo@bank.example>, " <a@b.example>', None),
        ('"\r\n <ceo@bank.example>" <a@b.example>', None),
        ('"<ceo@bank.example>" <a@b.example>', None),
        ("=?utf-8?q?=3Cceo=40bank=2Eexample=3E?= <a@b.example>", None),
        ("<a=?utf-8?q?=3Cceo=40bank.example=3E?=@b.example>", None),
        ("shop＠bank.example@b.example", None),
        ('"Shop, EU" <a@b.example>', ["a@b.example"]),
        ("Shop (EU) <a@b.example>", None),
        ('"Shop (EU)" <a@b.example>', ["a@b.example"]),
        ('(") <boss@bank.example> (") <a@b.example>', None),
        ('(") boss@bank.example, (") <a@b.example>', None),
        ("(<boss@bank.example>) a@b.example", None),
        ("a@b。example", None),
        ("a@ｂ.example", None),
        ("A@B.Example", ["A@b.example"]),
        ("a@bücher.example", ["a@bücher.example"]),
        ("a@xn--bcher-kva.example", ["a@bücher.example"]),
        ("a@b.example\x0b, boss@bank.example", None),
        ("=?utf-8?q?boss=40bank=2Eexample=3E?= <a@b.example>", None),
        ('"" <a@b.example>', ["a@b.example"]),
        ("J. Public & Söhne's <a@b.example>", ["a@b.example"]),
        ('"ceo@bank.example" <a@b.example>', ["a@b.example"]),
        ("a@b.example, C <c@d.example>", ["a@b.example", "c@d.example"]),
        ("=?utf-8?b?Q2Fmw6k=?=\r\n <a@b.example>", ["a@b.example"]),
        ("Café <a@b.example>", ["a@b.example"]),
        ("=?utf-8*en?q?=3Cceo=40bank.example=3E?= <a@b.example>", None),
        ("=?x-unknown?q?=3Cceo=40bank.example=3E?= <a@b.example>", None),
        ("=?utf-7?q?+ADw-ceo+AEA-bank.example+AD4-?= <a@b.example>", None),
        ("=?utf-8?q?ceo=40bank.example=2C?= <a@b.example>", None),
        ("=?utf-8?q?a=40b.example.bank.example=2C?= <a@b.example>", None),
        ('=?utf-8?q?=22?= <a@b.example>, "ceo@bank.example" <a@b.example>', None),
        ('"a\\" ceo@bank.example, \\"b" <a@b.example>', None),
        ('"ceo@bank.example, x" <a@b.example>', None),
        ("＜ceo＠bank.example＞ <a@b.example>", None),
        ('"=?utf-8?Q?"ceo=40bank.example"?=" <a@b.example>', None),
        ("=?utf-8?b?w?= <a@b.example>", None),
        ("=?iso-2022-jp?b?GyRCRnw=?= <a@b.example>", None),
        ("=?utf-8?q?x=00?= <a@b.example>", None),
        ("=?iso-2022-jp?B?GyRCRnxLXBsoQg==?= <a@b.example>", ["a@b.example"]),
        ("=?utf-8*de?q?M=C3=BCller=2C_Hans_=28EU=29?= <a@b.example>", ["a@b.example"]),
        ("=?utf-8?q?Caf=C3?= =?utf-8?q?=A9?= <a@b.example>", ["a@b.example"]),
        ("=?windows-1252?Q?Caf=E9 & Co?= <a@b.example>", ["a@b.example"]),
        ("=?utf-8?q?a=40b.example?= <a@b.example>", ["a@b.example"]),
        ('"Jo \\"the cook\\" Doe" <a@b.example>', ["a@b.example"]),
        ("<@relay.example:a@b.example>", None),
        ("a@b.example@c.example", None),
    ],
)
def test_from_addresses(written: str, senders: list[str] | None) -> None:
    """The addresses of From are all read, so that each can be checked; anything ambiguous is refused."""
    content = f"From: {written}\r\n\r\n".encode()
    if senders is None:
        with pytest.raises(Malformed):
            raw_mime.parse(content)
    else:
        assert list(raw_mime.parse(content).senders) == senders


PIECES = (
    "(", ")", '"', "\\", "<", ">", ",", ";", ":", "@", " ", "\t", ".", "[", "]", "é", "\u2028", "\x0b", "\r\n ", '(")',
    "'", "%", "!", "=?utf-8?q?=28=22=40?=", "=?utf-8?q?boss=40bank.example?=", "boss@bank.example",
    "<boss@bank.example>", "a@b.example", "<a@b.example>", "a@b。example", "Shop",
)  # fmt: skip


def read_by_all(text: str) -> set[str]:
    """Return the addresses that the parsers of the standard library read in a header, in lower case."""
    modern = message_from_bytes(f"From: {text}\r\n\r\n".encode(), policy=policy.default)["From"]
    pairs = [parseaddr(text), *getaddresses([text]), *getaddresses([text.replace("\r\n", "")])]
    read = [address for _, address in pairs] + [mailbox.addr_spec for mailbox in modern.addresses]
    return {address.encode("utf-8", "surrogateescape").decode().lower() for address in read}


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=9), st.lists(st.sampled_from(PIECES), max_size=3), st.booleans())
def test_no_program_reads_another_sender(before: list[str], after: list[str], is_bare: bool) -> None:
    """Whoever reads an accepted From header reads the addresses that were checked, and no others."""
    text = f"{''.join(before)}{'a@b.example' if is_bare else '<a@b.example>'}{''.join(after)}"
    try:
        senders = raw_mime.parse(f"From: {text}\r\nSender: {text}\r\n\r\n".encode()).senders
    except Malformed:
        return
    assert read_by_all(text.strip()) == {sender.lower() for sender in senders}


@pytest.mark.usefixtures("key_id")
def test_a_repeated_message_id_is_the_same_message(home: Home) -> None:
    """A repeat queues the recipients who are new, and after a day it is a new message; a revoked key queues nothing."""
    content = HEAD + IDENTIFIED + BODY
    assert len(submit(home, content, "ann@example.org").messages) == 1
    repeated = submit(home, content, "Ann@example.org")
    assert (repeated.messages, repeated.repeated_count, repeated.is_refused) == ((), 1, False)
    [message] = submit(home, content, "ann@example.org", "bea@example.org").messages
    assert message.recipient == "bea@example.org"
    assert len(submit(home, HEAD + BODY, "ann@example.org").messages) == 1  # without a Message-ID
    home.advance(86_401)
    assert len(submit(home, content, "ann@example.org").messages) == 1
    key = ApiKey.get()
    assert (key.smtp_count, scalar("SELECT count(*) FROM raw_message")) == (4, 4)
    transactions.write(access.revoke_key, home.account_id, key.id, Actor())
    with pytest.raises(submitted.KeyRevoked):
        submit(home, content, "new@example.org")
    assert scalar("SELECT count(*) FROM raw_message") == 4


@pytest.mark.usefixtures("key_id")
@pytest.mark.parametrize("padding", [b"", b"x" * 300_000], ids=["small", "large"])
def test_other_content_with_the_same_message_id_is_sent(home: Home, padding: bytes) -> None:
    """A program that uses a Message-ID twice loses no email; the same content is still the same message."""
    first, second = (HEAD + IDENTIFIED + b"\r\n" + text + padding + b"\r\n" for text in (b"one", b"two"))
    for content, count in ((first, 1), (second, 1), (first, 0), (second, 0)):
        assert len(submit(home, content, "ann@example.org").messages) == count
    rewritten = BODY.replace(b"boundary=x", b'boundary="y"').replace(b"--x", b"--y")
    for content, count in ((BODY, 1), (rewritten, 0), (BODY.replace(b"leading", b"other"), 1)):
        assert len(submit(home, HEAD + IDENTIFIED + content, "bea@example.org").messages) == count


@pytest.mark.usefixtures("key_id")
def test_a_refused_email_is_considered_again(home: Home) -> None:
    """A refusal is repeated for the same email, and an email is sent to those who have agreed since then."""
    content = b"X-Campanero-Class: marketing\r\n" + HEAD + IDENTIFIED + BODY
    for _ in range(2):
        assert submit(home, content, "new@example.org").is_refused
    home.contact("new@example.org")
    [message] = submit(home, content, "new@example.org").messages
    assert message.status == "queued" and not submit(home, content, "new@example.org").messages
    run("UPDATE message SET status = 'failed' WHERE id = ?", (message.id,))
    assert len(submit(home, content, "new@example.org").messages) == 1


@pytest.mark.usefixtures("key_id")
def test_marketing_needs_consent_and_gets_list_headers(home: Home) -> None:
    """A receipt ignores opt-outs; marketing goes only to those who agreed, with our list headers instead of others."""
    home.contact("ann@example.org")
    home.contact("out@example.org")
    home.opt_out("out@example.org")
    home.suppress("bad@example.org", "hard_bounce")
    everyone = ("ann@example.org", "out@example.org", "new@example.org", "bad@example.org")
    receipt = submit(home, HEAD + BODY, *everyone)
    assert [message.skip_reason for message in receipt.messages] == [None, None, None, "suppressed_hard_bounce"]
    own = b"X-Campanero-Class: Marketing\r\nList-Unsubscribe: <https://shop.example/u>\r\nPrecedence: list\r\n"
    marketing = submit(home, own + HEAD + BODY, *everyone)
    assert [message.skip_reason for message in marketing.messages] == [
        None, "unsubscribed", "no_consent", "suppressed_hard_bounce",
    ]  # fmt: skip
    mail = message_from_bytes(sent_bytes(marketing.messages[0]))
    assert mail.get_all("List-Unsubscribe-Post") == ["List-Unsubscribe=One-Click"]
    [unsubscribe] = mail.get_all("List-Unsubscribe")
    assert "/u/" in unsubscribe and "shop.example" not in unsubscribe
    assert submit(home, own + HEAD + BODY, "new@example.org").is_refused


@pytest.mark.usefixtures("key_id")
def test_the_content_of_large_and_small_emails_ends(home: Home) -> None:
    """Content is deleted 30 days after the last change of its messages, the large one on disk too, and by erasure."""
    large = HEAD + b"\r\n" + b"x" * 76 * 4_000 + b"\r\n"
    [message] = submit(home, large, "ann@example.org").messages
    [other] = submit(home, HEAD + BODY, "bea@example.org").messages
    assert sent_bytes(message).endswith(large) and len(list(home.directory.glob("attachments/*/*"))) == 1
    run("UPDATE message SET status = 'sent' WHERE id = ?", (message.id,))
    home.advance(31 * 86_400)
    expired = submitted.list_expired(10)
    assert transactions.write(submitted.delete, expired) == 1
    unreferenced = attachments.list_unreferenced(10)
    assert transactions.write(attachments.delete_unreferenced, unreferenced) == 1
    with pytest.raises(message_source.NotReproducible, match="deleted"):
        message_source.get_source(home.account_id, message.id)
    contact = home.contact("bea@example.org")
    transactions.write(removal.erase, home.account_id, contact.id, BY_API)
    assert scalar("SELECT count(*) FROM raw_message") == 0 and Message.get_by_id(other.id).status == "skipped"


@pytest.mark.parametrize("erased", [0, 1])
@pytest.mark.usefixtures("key_id")
def test_an_erased_recipient_does_not_stop_others(erased: int, home: Home) -> None:
    """An email to several people is sent to the others, also if the first one is erased."""
    queued = submit(home, HEAD + BODY, "ann@example.org", "bea@example.org")
    contact = home.contact(queued.messages[erased].recipient)
    transactions.write(removal.erase, home.account_id, contact.id, BY_API)
    assert sent_bytes(queued.messages[1 - erased]).endswith(BODY)
    assert Message.get_by_id(queued.messages[erased].id).status == "skipped"
    assert Message.get_by_id(queued.messages[1 - erased].id).status == "queued"


@pytest.mark.usefixtures("key_id")
def test_the_email_of_an_erased_recipient_ends_once_others_got_it(home: Home) -> None:
    """An email that names an erased person stays only as long as it is to be sent to others."""
    queued = submit(home, HEAD + BODY, "ann@example.org", "bea@example.org")
    submit(home, HEAD + BODY, "cem@example.org", "dee@example.org")
    transactions.write(removal.erase, home.account_id, home.contact("ann@example.org").id, BY_API)
    assert submitted.list_expired(10) == [] and scalar("SELECT count(*) FROM raw_message") == 2
    run("UPDATE message SET status = 'sent' WHERE id = ? OR recipient LIKE '_e%'", (queued.messages[1].id,))
    home.advance(60)
    assert transactions.write(submitted.delete, submitted.list_expired(10)) == 1
    assert rows("SELECT id FROM raw_message") == [(2,)]
    with pytest.raises(message_source.NotReproducible, match="deleted"):
        message_source.get_source(home.account_id, queued.messages[1].id)


def test_parts_of_any_email() -> None:
    """Services with an API of their own get what can be read of an email: unknown charsets, attached emails, 8 bits."""
    content = (
        b"From: =?x-unknown?q?Caf=E9?= <a@b.example>\r\nSubject: =?utf-8?b?!!!?= gr\xfc\xdfe\r\nContent-Type: "
        b"multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain; charset=x-unknown\r\n\r\nHello\r\n"
        b"--x\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\ninner text\r\n--x\r\nContent-Type: "
        b'image/png; name="\xff.png"\r\nContent-Transfer-Encoding: base64\r\n\r\n!\r\n--x--\r\n'
    )
    parts = mime_parts.parse_parts(content)
    assert (parts.sender.address, parts.text.strip(), parts.html) == ("a@b.example", "Hello", None)
    inner, picture = parts.attachments
    assert inner.content_type == "message/rfc822" and b"inner text" in inner.content
    assert picture.content_type == "image/png" and picture.name.encode()


TEXT = b"Content-Type: text/plain; charset="
HOSTILE = (
    TEXT + b"idna\r\n\r\na..b\r\n", TEXT + b"undefined\r\n\r\nab\r\n", TEXT + b"rot13\r\n\r\nab\r\n",
    TEXT + b"unicode_escape\r\n\r\n\\ud800\r\n", TEXT + b"idna\r\nContent-Transfer-Encoding: 8bit\r\n\r\na..\xff\r\n",
    TEXT + b'"utf-8\0x"\r\n\r\na\r\n', TEXT + b"utf-16-le\r\nContent-Transfer-Encoding: base64\r\n\r\nANg=\r\n",
    b"Reply-To: " + b"(" * 3_000 + b"\r\n\r\nx\r\n", b"Reply-To: " + b"(a" * 190 + b"\r\n\r\nx\r\n",
    b"Content-Disposition: attachment; filename*=idna''a..b\r\n\r\nx\r\n",
    b"Content-Disposition: attachment; filename*=unicode_escape''%5Cud800\r\n\r\nx\r\n",
    b"Content-Type: text/plain; name*=unicode_escape''%5Cud800\r\nContent-Disposition: attachment\r\n\r\nx\r\n",
    b"Content-Disposition: attachment; filename*" + b"9" * 5_000 + b"*=a\r\n\r\nx\r\n",
    b"Subject: =?unicode_escape?q?=5Cud800?=\r\nX-B: =?unicode_escape?q?=5Cud800?=\r\nX-C: \xff\r\n\r\nx\r\n",
    b"From: =?unicode_escape?q?=5Cud800?= <a@b.example>\r\n\r\nx\r\n",
    b"From: =?idna?q?a..b?= <a@b.example>\r\n\r\nx\r\n",
    b"Content-Type: message/rfc822\r\n\r\nSubject: \xff\r\nContent-Transfer-Encoding: base64\r\n\r\n\xff\xfe\r\n",
    b"Content-Type: multipart/mixed; boundary=a\r\nContent-Transfer-Encoding: base64\r\n\r\n--a\r\n\r\nx\r\n--a--\r\n",
    b"Content-Type: text/plain; charset*0*=idna''a..b\r\n\r\nx\r\n",
)  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: repr(content[:60]))
def test_hostile_headers_break_no_request_and_no_page(content: bytes) -> None:
    """Codecs of Python that are not charsets, and comments, change neither the other parts nor the JSON of requests."""
    parts = mime_parts.parse_parts(content if content.startswith(b"From") else b"From: a@b.example\r\n" + content)
    assert parts.sender.address == "a@b.example" and msgspec.json.encode(parts)
    shown = submitted.show(submitted.StoredEmail(content, "a@b.example", "Hi", 1))
    assert f"{shown.html}{shown.text}{shown.from_name}".encode()


@pytest.mark.parametrize("charset", ["punycode", "idna", "unicode_escape", "base64", "undefined", "x" * 50])
def test_codecs_that_are_no_charsets_are_not_used(charset: str) -> None:
    """Headers in such a charset stay as they are written, names of files and bodies are read as UTF-8 (T20)."""
    word = f"=?{charset}?q?a-9?="
    content = (
        f"From: a@b.example\r\nSubject: {word}\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n"
        f"--x\r\nContent-Type: text/plain; charset={charset}\r\n\r\nb-9\r\n"
        f"--x\r\nContent-Disposition: attachment; filename*={charset}''c-9%C3%A9\r\n\r\nx\r\n--x--\r\n"
    ).encode()
    parts = mime_parts.parse_parts(content)
    assert (parts.subject, parts.text.strip()) == (word, "b-9") and raw_mime.parse(content).subject == word
    assert [attachment.name for attachment in parts.attachments] == ["c-9é"]


def test_an_email_that_cannot_be_read_is_shown_as_such() -> None:
    """A page says that the content cannot be displayed."""
    content = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(2_000))
    shown = submitted.show(submitted.StoredEmail(content, "a@b.example", "Hi", 1))
    assert shown.subject == "Hi" and "cannot be displayed" in shown.html


@pytest.mark.parametrize(("kind", "unit"), [("html", b"<p>x" * 200 + b"\r\n"), ("plain", b"&x" * 400 + b"\r\n")])
def test_a_large_email_is_shown_in_part(kind: str, unit: bytes) -> None:
    """Displaying an email takes little time, whatever its size, and says that its end is missing."""
    large, small = (
        b"From: a@b.example\r\nContent-Type: text/%b\r\n\r\n" % kind.encode() + unit * count for count in (5_000, 100)
    )
    started = time.thread_time()
    shown = submitted.show(submitted.StoredEmail(large, "a@b.example", "Hi", 1))
    assert time.thread_time() - started < extend_timeout(1)
    assert len(shown.text) < 1_001_000 and (kind == "plain" or len(shown.html) < 1_001_000)
    for text in (shown.html.removesuffix("</p>"), shown.text.strip()):
        assert text.endswith("too large to be displayed in full.")
    whole = submitted.show(submitted.StoredEmail(small, "a@b.example", "Hi", 1))
    assert "too large" not in whole.html + whole.text


def test_the_addresses_in_to_are_limited() -> None:
    """An email to several people whose To header would take long to read is refused; the others are not read."""
    content = b"From: a@b.example\r\nTo: " + b"(" * 3_000 + b"\r\n\r\nx\r\n"
    with pytest.raises(Malformed, match="To or Cc"):
        raw_mime.parse(content, 2)
    assert raw_mime.parse(content, 1).visible == {}


def test_large_emails_are_limited_by_account_and_time() -> None:
    """No account takes all of the space for large emails, and an email must arrive at a least rate (T07)."""
    budget, megabyte = submission.ReceivingBudget(), 1_048_576
    assert budget.take(1, 70 * megabyte, 35 * megabyte) and not budget.take(1, 10 * megabyte, 10 * megabyte)
    assert budget.take(1, megabyte, megabyte) and budget.take(2, 35 * megabyte, 35 * megabyte)
    budget.give_back(1, 81 * megabyte)
    assert budget.take(1, 35 * megabyte, 35 * megabyte)
    assert [submission.get_receiving_seconds(count * megabyte) for count in (0, 1, 36)] == [60, 120, 600]


def _hash(kind: bytes, body: bytes, head: bytes = b"") -> bytes | None:
    head = b"From: a@b.example\r\nMessage-ID: <1@shop>\r\n" + head + b"Content-Type: " + kind
    return raw_mime.parse(head + b"\r\n\r\n" + body).repeat_hash


@pytest.mark.parametrize("declaration", [b'boundary="%b"', b"boundary=%b", b"BOUNDARY = %b", b"boundary*=us-ascii''%b"])
def test_repeats_are_recognized_with_other_boundaries(declaration: bytes) -> None:
    """A program may choose new boundaries for the same email, also for nested parts."""

    def build(outer: bytes, inner: bytes) -> bytes | None:
        nested = b"Content-Type: multipart/alternative; " + declaration % inner
        body = b"--%b\r\n%b\r\n\r\n--%b\r\n\r\nhi\r\n--%b--\r\n--%b--\r\n" % (outer, nested, inner, inner, outer)
        return _hash(b"multipart/mixed; " + declaration % outer, body)

    assert build(b"AA", b"BB") == build(b"CC", b"DDD")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((b"text/plain", b"boundary=111\r\n"), (b"text/plain", b"boundary=222\r\n")),
        ((b"text/plain", b"<b>x</b>\r\n"), (b"text/html", b"<b>x</b>\r\n")),
        ((b"multipart/mixed; boundary=1", b"Code: --1\r\n"), (b"multipart/mixed; boundary=2", b"Code: --2\r\n")),
        ((b"text/plain", b"x\r\n"), (b"text/plain", b"x\r\n", b'X-Campanero-Data: {"order": 7}\r\n')),
        ((b"text/plain", b"x\r\n"), (b"text/plain", b"x\r\n", b"X-Campanero-Class: marketing\r\n")),
    ],
)  # fmt: skip
def test_other_emails_with_the_same_message_id(first: tuple[bytes, ...], second: tuple[bytes, ...]) -> None:
    """Emails that differ in what their recipients see, or in their class or data, are not repeats."""
    assert _hash(*first) != _hash(*second)


def test_an_email_with_many_boundaries_is_read_once() -> None:
    """Searching a large email for each of 200 boundaries would keep the emails of all accounts waiting (T20)."""
    declared = b"".join(b'boundary="' + b"a" * 60 + b'%d"\r\n' % number for number in range(100))
    kind = b"multipart/mixed; " + b"; ".join(b"boundary=" + b"a" * 50 + b"%d" % number for number in range(60))
    body = declared + b"a" * 4_000_000
    started = time.thread_time()
    _hash(b"text/plain", body)
    plain = time.thread_time()
    _hash(kind, body)
    assert time.thread_time() - plain < 5 * (plain - started) + 0.2


def test_nested_parts_are_counted_in_any_slice() -> None:
    """A large email is searched in slices; a header that lies in two of them counts too."""
    size = 1_048_576
    head = b"From: a@b.example\r\n\r\n"
    for start in (size - 20, size - 8, size - 1, size):
        part = b"Content-Type: Multipart/mixed\r\n"
        filler = b"/" * (start - len(head) - 2) + b"\r\n"
        raw_mime.parse(head + filler + part * 100)
        with pytest.raises(Malformed, match="nested"):
            raw_mime.parse(head + filler + part * 101)
