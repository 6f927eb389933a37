"""Decode the texts of emails: encoded words in headers, bodies in any charset, and names of files.

The emails may be malicious: everything here takes time in proportion to the length of its input, whereas some codecs of
Python, and the headers of `email.policy.default`, take time with its square.
"""

import codecs
import email.errors
import email.header
import email.utils
from email.message import Message
from functools import lru_cache

# Codecs of Python that decode bytes to text, and are not charsets of email.
_NO_CHARSETS = frozenset(("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"))


@lru_cache(256)
def _find_codec(charset: str) -> str | None:
    """Return the name of the codec of a charset, or None if there is no such charset."""
    try:
        name = codecs.lookup(charset).name
        b"a".decode(name, "replace")  # Raises LookupError for a codec that does not make text of bytes, such as base64.
    except (LookupError, ValueError):
        return None
    return None if name.replace("_", "-") in _NO_CHARSETS else name


def find_codec(charset: str) -> str | None:
    """Return the name of the codec of a charset from an untrusted email, or None if there is no such charset."""
    return _find_codec(charset.lower()) if len(charset) < 40 else None


def decode_bytes(data: bytes, charset: str | None) -> str:
    """Return the text of a body, in UTF-8 if `charset` is missing or unknown; undecodable bytes are replaced."""
    return replace_surrogates(data.decode(find_codec(charset or "utf-8") or "utf-8", "replace"))


def decode_words(text: str) -> str:
    """Return a header with its encoded words decoded (RFC 2047), or as it is written if they cannot be decoded."""
    if "=?" in text:
        try:
            pieces = email.header.decode_header(text)
            if all(charset is None or find_codec(charset) for _, charset in pieces):
                text = str(email.header.make_header(pieces))
        except (LookupError, ValueError, email.errors.MessageError):
            pass  # An unknown charset or invalid base64
    return replace_surrogates(text)


def read_filename(part: Message) -> str:
    """Return the name of the file in a part of an email (RFC 2183, RFC 2231), "" if it has none that can be read."""
    try:
        name = part.get_param("filename", None, "content-disposition") or part.get_param("name", None)
    except (LookupError, ValueError, TypeError, AttributeError):
        return ""  # The numbering of its parameter (RFC 2231, section 3) is invalid.
    if isinstance(name, tuple):
        charset, _, text = name
        return decode_bytes(text.encode("raw-unicode-escape"), charset).strip()
    return replace_surrogates(email.utils.unquote(name or "")).strip()


def replace_surrogates(text: str) -> str:
    """Return a text without lone surrogates, which JSON and UTF-8 cannot contain."""
    return text.encode("utf-8", "replace").decode()
