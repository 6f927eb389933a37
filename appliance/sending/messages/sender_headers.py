"""Read the addresses of a From or Sender header of a submitted email, and refuse what programs read differently.

Some programs parse a header before they decode it, others after; some know no escapes, or other charsets. All of them
must read the addresses that are checked (docs/threats.md#t37).
"""

import base64
import codecs
import email.errors
import email.headerregistry
import email.utils
import quopri
import re
import unicodedata
from functools import lru_cache
from typing import Any

from appliance.core import addresses

_MAX_FROM_BYTES, _MAX_SENDERS = 2_000, 20
# RFC 5322, 3.4: mailboxes, with a name as quoted string or as it is written, or without one. Comments are not allowed,
# because a quotation mark in a comment begins a quoted string in some programs, which then read another address.
_MAILBOX = re.compile(
    r'(?:(?:"(?:[^"\\]|\\.)*"|[^<>",:;()\[\]@\\])*<\s*([^<>\s",;()]{1,254})\s*>|([^<>\s",;:()]{1,254}))\s*(,|\Z)'
)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
# RFC 2047, 2 and RFC 2231, 5: an encoded word, with a language or without. Spaces in it are written by some programs.
_WORD = re.compile(r"=\?([\w.:+-]{1,40})(?:\*[A-Za-z0-9-]{0,35})?\?([bBqQ])\?([ !->@-~]*)\?=", re.ASCII)
_BETWEEN_WORDS = re.compile(r"\?=[ \t]+=\?")
_Q_TEXT = re.compile(r"(?:[^=]|=[0-9A-Fa-f]{2})*")
# Charsets in which ASCII stands for itself, by the names of their codecs. Any other one, as UTF-7, can hide an address.
_NAME_CHARSETS = re.compile(
    r"ascii|utf-8|iso8859-\d+|cp(?:437|85\d|866|874|932|949|950|125\d)|koi8-[ru]|mac-roman|tis-620|gb2312|gbk|gb18030"
    r"|big5|big5hkscs|shift_jis|euc_jp|euc_kr|iso2022_(?:jp|jp_\d|jp_ext|kr)"
)
# What divides words in which programs look for an address.
_DIVIDERS = re.compile(r"""[\s<>",;:()\[\]\\]+""")
# Programs that know no escapes, split at each separator or expect another charset read these in a quoted name.
_SPLITTING, _SEPARATORS = frozenset("\\,;\ufffd"), '()[],:;"'
# Control characters, and those that end a line in some programs.
_LINE_CATEGORIES = ("Cc", "Zl", "Zp")
_UNDECODABLE = "The From or Sender header has an encoded name that cannot be decoded"


class Malformed(Exception):
    """The email is refused; the text is an English sentence for the reply, without the content of the email."""

    reply_code = "554 5.6.0"


@lru_cache(maxsize=256)
def parse_mailboxes(value: bytes) -> tuple[str, ...]:
    """Return the normal forms of the addresses in a From or Sender header. Raises Malformed for anything else in it.

    Groups, comments, quoted local parts and domains in other than their normal form are refused, because programs read
    them in different ways.
    """
    folded = value.decode("utf-8", "replace")
    text = folded.replace("\r\n", "")
    if len(value) > _MAX_FROM_BYTES:
        raise Malformed("The From or Sender header is too long")
    if any("\n" in quoted for quoted in _QUOTED.findall(folded)):
        # Some programs end a quoted string at the end of its line.
        raise Malformed("A quoted name in the From or Sender header must stand on one line")
    if any(unicodedata.category(char) in _LINE_CATEGORIES for char in text.replace("\t", " ")):
        raise Malformed("Control characters are not allowed in the From or Sender header")
    if any(char in _QUOTED.sub("", text) for char in "()"):
        raise Malformed("Parentheses are allowed in the From or Sender header only inside of quotation marks")
    mailboxes, written, position, brackets = list[str](), list[str](), 0, 0
    while position < len(text):
        position += len(text) - position - len(text[position:].lstrip())
        match = _MAILBOX.match(text, position)
        if match is None or len(mailboxes) == _MAX_SENDERS:
            break
        written.append(match[1] or match[2])
        brackets += match[1] is not None
        mailboxes.append(_parse_sender(written[-1]))
        position = match.end()
        if not match[3]:
            if _has_other_address(text, written, brackets) or not _is_read_alike(text, written):
                raise Malformed("The addresses of the From or Sender header are ambiguous")
            return tuple(mailboxes)
    raise Malformed("The From or Sender header has no valid address")


def _parse_sender(written: str) -> str:
    """Return the normal form of an address; it must be written in it, except for letter case and Punycode."""
    try:
        parsed = addresses.parse_email(written)
    except ValueError:
        raise Malformed("The From or Sender header has no valid address") from None
    local, _, domain = written.rpartition("@")
    if "=?" in local or "\ufffd" in local or any(char in unicodedata.normalize("NFKC", local) for char in "@<>"):
        raise Malformed("The address in the From or Sender header must be written in its normal form")
    normal_local, _, normal_domain = parsed.value.rpartition("@")
    ascii_domain = parsed.key.rpartition("@")[2]
    if local != normal_local or (domain.lower() if domain.isascii() else domain) not in (normal_domain, ascii_domain):
        raise Malformed("The address in the From or Sender header must be written in its normal form")
    return parsed.value


def _is_read_alike(text: str, written: list[str]) -> bool:
    """Return whether the three parsers of the standard library read exactly these addresses in a header."""
    try:
        header: Any = email.headerregistry.HeaderRegistry()("From", text)
        return (
            email.utils.parseaddr(text)[1] == written[0]
            and [address for _, address in email.utils.getaddresses([text])] == written
            and [mailbox.addr_spec for mailbox in header.addresses] == written
        )
    except (RecursionError, LookupError, ValueError, TypeError, AttributeError, email.errors.MessageError):
        return False


def _has_other_address(text: str, written: list[str], bracket_count: int) -> bool:
    """Return whether a program that decodes a header before it parses it may read an address other than these.

    A quoted name may contain another address if all programs find the end of the name. Raises Malformed for an encoded
    word that programs decode in different ways.
    """
    if "=?" in text and '"' in text[text.index("=?") : text.rfind("?=")]:
        return True  # Some programs decode what others read as the end and the beginning of two quoted names.
    allowed = {unicodedata.normalize("NFKC", address).lower() for address in written}

    def has_other(part: str) -> bool:
        return any("@" in word and word.lower() not in allowed for word in _DIVIDERS.split(part))

    quoted, unquoted = _QUOTED.findall(text), _QUOTED.sub('""', text)
    rest, names = (unicodedata.normalize("NFKC", _decode_words(part)) for part in (unquoted, "".join(quoted)))
    decoded = rest + names
    if any(decoded.count(char) != bracket_count for char in "<>") or has_other(rest):
        return True
    if "=?" not in text:
        return not _SPLITTING.isdisjoint(names) and any(map(has_other, (*quoted, names)))
    # A decoded quotation mark without its counterpart would quote the address, and a separator may divide a name.
    written_text = unquoted + "".join(quoted)
    is_divided = any(decoded.count(char) > written_text.count(char) for char in _SEPARATORS)
    return (
        decoded.count('"') % 2 > 0
        or "\\" in decoded
        or (is_divided and decoded.count("@") > len(written))
        or any(map(has_other, (*quoted, names)))
    )


def _decode_words(text: str) -> str:
    """Return a From or Sender header with its encoded words decoded (RFC 2047). Raises Malformed."""
    if "=?" not in text:
        return text
    text = _BETWEEN_WORDS.sub("?==?", text)
    # Some programs write a character of UTF-8 in two words, so words that follow each other are decoded together.
    pieces, position, begun = list[str](), 0, b""
    for match in _WORD.finditer(text):
        content = _decode_word(match[2], match[3])
        charset = _find_charset(match[1])
        if begun and (match.start() > position or charset != "utf-8"):
            pieces.append(_decode_name(begun, "utf-8"))
            begun = b""
        pieces.append(text[position : match.start()])
        position = match.end()
        if charset == "utf-8":
            begun += content
        else:
            pieces.append(_decode_name(content, charset))
    if begun:
        pieces.append(_decode_name(begun, "utf-8"))
    pieces.append(text[position:])
    if "=?" in _WORD.sub(" ", text):
        raise Malformed(_UNDECODABLE)
    return "".join(pieces)


def _decode_word(encoding: str, written: str) -> bytes:
    try:
        if encoding in "bB":
            return base64.b64decode(written, validate=True)
        if _Q_TEXT.fullmatch(written):
            return quopri.decodestring(written.replace("_", " ").encode(), header=True)
    except ValueError:
        pass  # Refused as below.
    raise Malformed(_UNDECODABLE)


def _find_charset(written: str) -> str:
    try:
        charset = codecs.lookup(written).name
    except LookupError:
        charset = ""
    if not _NAME_CHARSETS.fullmatch(charset):
        raise Malformed(_UNDECODABLE)
    return charset


def _decode_name(content: bytes, charset: str) -> str:
    try:
        name = (content + b"@").decode(charset)
    except ValueError:
        name = ""
    # A word that does not end in ASCII would change the meaning of what follows it (RFC 2047, 3).
    if not name.endswith("@") or any(unicodedata.category(char) in _LINE_CATEGORIES for char in name):
        raise Malformed(_UNDECODABLE)
    return name[:-1]
