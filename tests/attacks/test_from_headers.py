"""Generated From headers of submitted emails: every program must read the addresses that were checked (T07, T37).

Headers are made of encoded words, right and nearly right, quoted names, comments, groups, folds, control characters and
look-alikes. Some programs parse a header before they decode it, others after; some know no escapes.
"""

import base64
import codecs
import json
import quopri
import random
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from email import header, message_from_bytes, message_from_string, policy
from email.errors import MessageError
from email.utils import getaddresses, parseaddr
from typing import Any

from appliance.sending.messages import raw_mime
from appliance.sending.messages.sender_headers import Malformed
from tests.kit import node_clients
from tests.kit.sampling import examples

COUNT = examples(1_500, full=300_000)
OWN, FOREIGN = "ok@ver.example", "boss@bank.example"
# What encoded words hide.
_TEXTS = (
    FOREIGN, f"<{FOREIGN}>", f"{FOREIGN},", f'"{FOREIGN}', f"{FOREIGN};", f"{FOREIGN}(", '"', "(", ")", ",", ":", ";",
    "@bank.example", "@", "<", ">", "boss", "bank.example", "\r\n", "\0", "\\", " ", f"{OWN}.bank.example", f"{OWN},",
    OWN, "＠bank.example", "Müller, Hans", *["Café"] * 6,
)  # fmt: skip
_CHARSETS = (
    *["utf-8"] * 6, "UTF-8", "utf-8*en", "UTF8", "iso-8859-1", "us-ascii", "utf-7", "utf-16", "hz", "cp037",
    "iso-2022-jp", "shift_jis", "gb18030", "x-unknown", "rot13", "unicode_escape", "idna", "",
)  # fmt: skip
_NAMES = (
    "", "Shop", '"Shop, EU"', '"', "(", ")", "\\", ",", ";", ":", "@", ".", "é", "＠", "＜", "\x0b", "\u2028", "\ufeff",
    "\ufffd", "%40", "&#64;", "=?", "?=", "'", "group:", "\r\n ", "\t", FOREIGN, f"<{FOREIGN}>", f'"{FOREIGN}"',
    f"<{OWN}>,", f'"a\\" {FOREIGN}, \\"b"', f'"{FOREIGN}, x"', f"({FOREIGN})", f'"{OWN}"', f"'{FOREIGN}'",
    f'"\r\n {FOREIGN},"', "boss＠bank.example", f"[{FOREIGN}]",
)  # fmt: skip
_ADDRESSES = (
    f"<{OWN}>", f"<{OWN}>", f"<{OWN}>", f"<{OWN}>", OWN, "<ok@VER.example>", f"< {OWN} >", f"<{OWN}",
    f"<@bank.example:{OWN}>", "<ok@xn--bcher-kva.example>", "<ok@bücher.example>", "<ok@ver。example>", f"<{OWN}>,",
    '<"ok"@ver.example>', f"<{OWN}> <{FOREIGN}>",
)  # fmt: skip
_WORD = re.compile(r"=\?([^?]*?)\?([bBqQ])\?(.*?)\?=", re.DOTALL)
_ADDRESS = re.compile(r"""[^\s<>",;:()\[\]\\]+@[^\s<>",;:()\[\]\\]+""")


def _write_word(rng: random.Random) -> str:
    charset, text, encoding = (
        rng.choice(_CHARSETS),
        rng.choice(_TEXTS) + rng.choice(("", "", *_TEXTS)),
        rng.choice("qQbB"),
    )
    try:
        content = text.encode(charset.partition("*")[0])
    except (LookupError, ValueError):
        content = text.encode()
    if rng.random() < 0.1:
        content = rng.choice((b"\x83", b"\x1b$B", b"\xe9", b"\xc0\xbc", b"+AEA-", b"~{")) + content
    if encoding in "bB":
        written = base64.b64encode(content).decode()
        written = written.rstrip("=") if rng.random() < 0.2 else written
    else:
        written = "".join(
            chr(byte) if 33 <= byte < 127 and chr(byte) not in "=?_" and rng.random() < 0.3 else f"={byte:02X}"
            for byte in content
        )
    word = f"=?{charset}?{encoding}?{written}?="
    if rng.random() < 0.1:
        position = rng.randrange(len(word))
        word = word[:position] + rng.choice((" ", "?", "=", "\t", "!", "*", "\r\n ")) + word[position:]
    return f'"{word}"' if rng.random() < 0.15 else word


def _write_header(rng: random.Random) -> str:
    """Return a From header with one address at least, most of them hostile."""
    pieces: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            pieces += (
                _write_word(rng) if rng.random() < 0.6 else rng.choice(_NAMES),
                rng.choice(("", " ", " ", "\r\n ")),
            )
        pieces += (rng.choice(_ADDRESSES), rng.choice(("", "", "", ", ", "; ", " ")))
    if rng.random() < 0.1:
        pieces.append(rng.choice(_NAMES))
    return "".join(pieces).strip() if rng.random() < 0.9 else "".join(pieces)


def _decode_strictly(text: str) -> str:
    """Return a header as the standard library decodes it, or as it is."""
    try:
        return str(header.make_header(header.decode_header(text)))
    except (LookupError, ValueError, MessageError):
        return text


def _decode_leniently(text: str) -> str:
    """Return a header as programs decode it that accept whatever looks like an encoded word."""

    def decode(match: re.Match[str]) -> str:
        written = match[3].encode("utf-8", "replace")
        if match[2] in "bB":
            written = re.sub(rb"[^A-Za-z0-9+/]", b"", written)
            content = base64.b64decode(written[: len(written) // 4 * 4 + (len(written) % 4 > 1) * 4] + b"==")
        else:
            content = quopri.decodestring(written.replace(b"_", b" "), header=True)
        charset = match[1].partition("*")[0]
        try:
            is_text = codecs.lookup(charset).name not in ("idna", "punycode", "undefined", "unicode-escape")
            return content.decode(charset if is_text else "latin-1", "replace")
        except (LookupError, ValueError):
            return content.decode("latin-1")

    return _WORD.sub(decode, re.sub(r"\?=\s+=\?", "?==?", text))


def _parse(text: str) -> Iterator[str]:
    """Yield what parsers of very different kinds take for addresses in a header or decoded header."""
    yield from (parseaddr(text)[1], *(address for _, address in getaddresses([text])))
    if brackets := re.findall(r"<([^>]+)>", text):
        yield from (brackets[0].strip(), brackets[-1].strip())
    yield from _ADDRESS.findall(re.sub(r'"[^"]*"', "", text))


def _read_undecoded(text: str) -> set[str]:
    """Return the addresses that programs read that parse a header as it is written."""
    unfolded = text.replace("\r\n", "")
    content = f"From: {text}\r\n\r\n".encode()
    modern: Any = message_from_bytes(content, policy=policy.default)["From"]
    legacy = message_from_string(f"From: {text}\r\n\r\n")["From"]
    return {*_parse(unfolded), *_parse(legacy), *(mailbox.addr_spec for mailbox in modern.addresses)}


def _accept(count: int, seed: int) -> list[tuple[str, set[str]]]:
    """Return the generated headers that are accepted, each with the addresses that were checked, in lower case."""
    rng, accepted = random.Random(seed), []
    for _ in range(count):
        text = _write_header(rng)
        try:
            senders = raw_mime.parse(f"From: {text}\r\n\r\n".encode()).senders
        except Malformed:
            continue
        accepted.append((text, {sender.lower() for sender in senders}))
    return accepted


def _simplify(addresses: set[str]) -> set[str]:
    """Return addresses in lower case and with a domain in Unicode."""
    return {
        address.lower().replace("xn--bcher-kva", "bücher").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for address in addresses
    }


def test_every_program_reads_the_addresses_that_were_checked() -> None:
    """A header is refused if a program that decodes it, or that parses it in another way, may read another address."""
    accepted = _accept(COUNT, 1)
    assert len(accepted) > COUNT / 50
    for text, senders in accepted:
        assert _simplify(_read_undecoded(text)) == senders, text
        unfolded = text.replace("\r\n", "")
        for decoded in (_decode_strictly(unfolded), _decode_leniently(unfolded)):
            for written in (decoded, unicodedata.normalize("NFKC", decoded)):
                read = {address for part in _simplify(set(_parse(written))) for address in _ADDRESS.findall(part)}
                assert read <= senders, (text, written)


def test_a_parser_in_javascript_reads_the_addresses_that_were_checked() -> None:
    """The parser of nodemailer, which many servers use, reads an accepted header as it was checked."""
    accepted = _accept(COUNT, 2)
    texts = [text.replace("\r\n", "") for text, _ in accepted]
    script = (
        'import parse from "nodemailer/lib/addressparser"; let text = "";'
        "for await (const piece of process.stdin) text += piece;"
        "console.log(JSON.stringify(JSON.parse(text).map((written) => parse(written, {flatten: true}))))"
    )
    written = json.dumps([*texts, *map(_decode_leniently, texts)])
    process = subprocess.run(
        [node_clients.find_node(), "--input-type=module", "-e", script], cwd=node_clients.DIRECTORY, input=written,
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    results = [_simplify({mailbox["address"] for mailbox in mailboxes}) for mailboxes in json.loads(process.stdout)]
    for position, (text, senders) in enumerate(accepted):
        assert results[position] == senders, text
        assert {address for address in results[len(accepted) + position] if "@" in address} <= senders, text
