"""Parsing of addresses: one normal form each, nothing that a mail server could read differently (T08)."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core import addresses

LOCAL = st.text(st.sampled_from("abcXYZ019._+-'!#$%&*/=?^`{|}~"), min_size=1, max_size=64).filter(
    lambda text: not text.startswith(".") and not text.endswith(".") and ".." not in text
)
DOMAIN = st.from_regex(r"[a-z][a-z0-9]{0,20}(\.[a-z][a-z0-9]{1,10}){0,2}\.[a-z]{2,6}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "value", "key"),
    [
        ("Ann@Example.ORG", "Ann@example.org", "ann@example.org"),
        ("  ann@example.org ", "ann@example.org", "ann@example.org"),
        ("ann+news@example.org", "ann+news@example.org", "ann+news@example.org"),
        ("O'Brien@example.test", "O'Brien@example.test", "o'brien@example.test"),
        ("a@MÜNCHEN.de", "a@münchen.de", "a@xn--mnchen-3ya.de"),
        ("a@xn--mnchen-3ya.de", "a@münchen.de", "a@xn--mnchen-3ya.de"),
        ("пользователь@пример.рф", "пользователь@пример.рф", "пользователь@xn--e1afmkfd.xn--p1ai"),
        ("A\u030a@example.org", "Å@example.org", "å@example.org"),
        ("STRAßE@example.org", "STRAßE@example.org", "straße@example.org"),
        ("ẞ@example.org", "ẞ@example.org", "ß@example.org"),
        ("STRASSE@example.org", "STRASSE@example.org", "strasse@example.org"),
        ("\u017fam@example.org", "\u017fam@example.org", "\u017fam@example.org"),
        ("\u0130@example.org", "\u0130@example.org", "i\u0307@example.org"),
        ("I\u0307@example.org", "\u0130@example.org", "i\u0307@example.org"),
        ("\u0130\u0323@example.org", "\u1eca\u0307@example.org", "\u1ecb\u0307@example.org"),
        ("\u0131@example.org", "\u0131@example.org", "\u0131@example.org"),
        ("\uff41@example.org", "\uff41@example.org", "\uff41@example.org"),
        ("\ufb01@example.org", "\ufb01@example.org", "\ufb01@example.org"),
        ("a@STRAßE.de", "a@straße.de", "a@xn--strae-oqa.de"),
        ("a@XN--STRAE-OQA.de", "a@straße.de", "a@xn--strae-oqa.de"),
        ("a@strasse.de", "a@strasse.de", "a@strasse.de"),
        ("a@example\u3002org", "a@example.org", "a@example.org"),
        ("a@\uff45xample.org", "a@example.org", "a@example.org"),
        ("a@sub.example.invalid", "a@sub.example.invalid", "a@sub.example.invalid"),
        ("a@localhost.localdomain", "a@localhost.localdomain", "a@localhost.localdomain"),
    ],
)
def test_an_address_has_one_normal_form(text: str, value: str, key: str) -> None:
    """Case, surrounding space, Unicode composition and IDN spelling do not create another address."""
    assert addresses.parse_email(text) == ("email", value, key)


LETTERS = "aAzZ0.-_+'ßẞſsSıiIİ\u0307\u0323éÉe\u0301Ååµμσςς\ufb00\uff41K\u212añÑǅǆ"


@given(st.text(st.sampled_from(LETTERS), min_size=1, max_size=12))
def test_normalizing_an_address_twice_changes_nothing(text: str) -> None:
    """The displayed value and the key of an address, in any Unicode composition, parse to the same key."""
    try:
        address = addresses.parse_email(f"{text}@example.org")
    except ValueError:
        return
    for other in (
        address.value,
        address.key,
        *(unicodedata.normalize(form, address.value) for form in ("NFC", "NFD")),
    ):
        assert addresses.parse_email(other).key == address.key
    assert addresses.normalize_query(text + "@example.org") == address.key


@pytest.mark.parametrize(
    ("first", "second"),
    [("straße", "strasse"), ("ſam", "sam"), ("ﬁ", "fi"), ("ａ", "a"), ("ı", "i"), ("İ", "i"), ("µ", "μ"), ("ς", "σ"),
     ("é", "e"), ("²", "2")],
)  # fmt: skip
def test_similar_looking_addresses_have_different_keys(first: str, second: str) -> None:
    """Full case folding, compatibility normalization and removal of accents are not applied to addresses."""
    assert addresses.parse_email(f"{first}@example.org").key != addresses.parse_email(f"{second}@example.org").key


@given(local=LOCAL, domain=DOMAIN)
def test_case_does_not_change_the_key_of_an_address(local: str, domain: str) -> None:
    """An address in capitals has the same key, and its displayed value parses to the same address."""
    address = addresses.parse_email(f"{local}@{domain}")
    assert addresses.parse_email(f"{local.upper()}@{domain.upper()}").key == address.key
    assert addresses.parse_email(address.value) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "plain",
        "@example.org",
        "ann@",
        '"a b"@example.org',
        '"a"@example.org',
        "a@x>,<b@y.example",
        "a@example.org>,<b@example.org",
        "a@example.org NOTIFY=SUCCESS",
        "a@example.org SIZE=1",
        "-oQ/tmp@x",
        "a@[127.0.0.1]",
        "a@[IPv6:::1]",
        "a@127.0.0.1",
        "a@example.org\r\nRCPT TO:<b@y.example>",
        "a@example.org\nb",
        "a\r@example.org",
        "a\0@example.org",
        "a\x85b@example.org",
        "a\u2028b@example.org",
        "a\u200bb@example.org",
        "a\u202eb@example.org",
        "a@exam\u200bple.org ",
        "a@b@example.org",
        "a;b@example.org",
        "a,b@example.org",
        "a:b@example.org",
        "<a@example.org>",
        "Ann <a@example.org>",
        "a@example.org,b@example.org",
        "a(comment)@example.org",
        "a@(comment)example.org",
        ".a@example.org",
        "a.@example.org",
        "a..b@example.org",
        "a@example..org",
        "a@.example.org",
        "a@example.org.",
        "a@-example.org",
        "a@example-.org",
        "a@exa_mple.org",
        "a@exa mple.org",
        "root@localhost",
        "a@test",
        "mailto:a@example.org",
        "a" * 65 + "@example.org",
        "a" * 300 + "@example.org",
        "a@" + "b" * 64 + ".org",
        "a@" + "b." * 130 + "org",
        "ü" * 60 + "@" + "ü" * 50 + "." + "ü" * 50 + "." + "ü" * 50 + "." + "ü" * 50 + ".de",
    ],
)
def test_malformed_email_addresses_are_rejected(text: str) -> None:
    """Quoted local parts, literals, second addresses, SMTP options, dotless domains and overlong forms are invalid."""
    with pytest.raises(ValueError, match=r"^is invalid$"):
        addresses.parse_email(text)


@given(st.text(max_size=80))
def test_a_parsed_address_is_safe_in_smtp_and_headers(text: str) -> None:
    """A parsed address has one @, at most 254 printable characters, no space and no syntax of SMTP or headers."""
    try:
        address = addresses.parse_email(f"{text}@example.org")
    except ValueError:
        return
    for form in (address.value, address.key, addresses.to_ascii(address.value) or address.value):
        assert form.count("@") == 1 and form.isprintable() and len(form) <= 254
        assert not set(form) & set(' <>()[],;:\\"')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+14155550123", "+14155550123"),
        ("+1 (415) 555-0123", "+14155550123"),
        (" +49.30.1234567 ", "+49301234567"),
        ("+1234567", "+1234567"),
        ("+123456789012345", "+123456789012345"),
    ],
)
def test_a_phone_has_one_normal_form(text: str, value: str) -> None:
    """Spaces, dots, dashes and parentheses do not create another number."""
    assert addresses.parse_phone(text) == ("phone", value, value)


@pytest.mark.parametrize(
    "text",
    ["", "4155550123", "0014155550123", "+0123456789", "+123456", "+1234567890123456", "+1415555O123", "+1415/5550123",
     "++14155550123",
     "+1415\n5550123", "+1415\t5550123", "tel:+14155550123", "+1415555012３4x", "+", "+1 415 555 0123 x1"],
)  # fmt: skip
def test_malformed_phone_numbers_are_rejected(text: str) -> None:
    """A number needs a plus sign, a country code and 7 to 15 digits in all."""
    with pytest.raises(ValueError, match=r"^is invalid$"):
        addresses.parse_phone(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a@münchen.de", "a@xn--mnchen-3ya.de"),
        ("a@example.org", "a@example.org"),
        ("ü@example.org", None),
        ("A.b+c@Example.org", "A.b+c@Example.org"),
    ],
)
def test_to_ascii_encodes_the_domain_only(text: str, expected: str | None) -> None:
    """An IDN becomes its A-label; an address with a non-ASCII local part has no ASCII form."""
    assert addresses.to_ascii(text) == expected


@pytest.mark.parametrize(("number", "country"), [("+14155552671", "US"), ("+4930901820", "DE"), ("+15551234567", None)])
def test_country_of_a_phone_number(number: str, country: str | None) -> None:
    """The country is derived from the number where the number determines it, else it is None."""
    assert addresses.country_of_phone(number) == country
