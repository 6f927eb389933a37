"""UTM parameters: how an address gets them, which links of a message do, and their values."""

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs import links, utm
from appliance.content.designs.utm import LinkTagger

TAGGER = LinkTagger((("utm_source", "news letter"), ("utm_campaign", "früh&co")), ("https://mail.acme.example/app",))
ADDED = "utm_source=news%20letter&utm_campaign=fr%C3%BCh%26co"
PAGE = "https://shop.example/a"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (PAGE, f"{PAGE}?{ADDED}"),
        ("HTTPS://Shop.example", f"HTTPS://Shop.example?{ADDED}"),
        (f"{PAGE}#part?b=1", f"{PAGE}?{ADDED}#part?b=1"),
        (f"{PAGE}?b=1&b=2&c", f"{PAGE}?b=1&b=2&c&{ADDED}"),
        (f"{PAGE}?", f"{PAGE}?{ADDED}"),
        (f"{PAGE}?b=1&", f"{PAGE}?b=1&{ADDED}"),
        # Values that are there stay, also empty ones, and whatever their case or encoding
        (f"{PAGE}?utm_source=x", f"{PAGE}?utm_source=x&utm_campaign=fr%C3%BCh%26co"),
        (f"{PAGE}?utm_campaign=", f"{PAGE}?utm_campaign=&utm_source=news%20letter"),
        (f"{PAGE}?UTM_source=x&utm%5Fcampaign=y#z", f"{PAGE}?UTM_source=x&utm%5Fcampaign=y#z"),
        # Merge tags stay; a question mark or number sign in one is not part of the address
        (f"{PAGE}/{{{{ data.a | default: '?#' }}}}", f"{PAGE}/{{{{ data.a | default: '?#' }}}}?{ADDED}"),
        (f"{PAGE}?q={{{{ first_name }}}}#{{{{ data.b }}}}", f"{PAGE}?q={{{{ first_name }}}}&{ADDED}#{{{{ data.b }}}}"),
        ("https://mail.acme.example/other", f"https://mail.acme.example/other?{ADDED}"),
        ("https://mail.acme.example/application", f"https://mail.acme.example/application?{ADDED}"),
        ("https://mail.acme.example:8443/app/x", f"https://mail.acme.example:8443/app/x?{ADDED}"),
    ],
)  # fmt: skip
def test_an_address_gets_the_parameters_that_it_does_not_have(address: str, expected: str) -> None:
    """They follow all that is there, before the fragment."""
    assert TAGGER.tag(address) == expected


@pytest.mark.parametrize(
    "address",
    ["mailto:a@b.example?subject=x", "tel:+1555", "#part", "/a", "//shop.example/a", "{{ unsubscribe_url }}",
     "{{ data.link }}", "https://{{ data.host }}/a", "https://mail.acme.example/app", "https://mail.acme.example",
     "https://MAIL.acme.example/app/f/1?x=1", f"{PAGE}{{% if x %}}?a=1{{% endif %}}", "https://shop.example:x/a"],
)  # fmt: skip
def test_other_addresses_stay_as_they_are(address: str) -> None:
    """Other schemes, hosts from merge tags, conditions, and pages of the service get no parameters."""
    assert TAGGER.tag(address) == address


_URL_TEXT = st.text("abcxyzäöü0123456789-._~%+=&?/:;@,!$'()*", max_size=30)


@given(_URL_TEXT, st.none() | _URL_TEXT, st.none() | st.text("ab#?&=/%é", max_size=20))
def test_any_address_keeps_everything_that_it_has(path: str, query: str | None, fragment: str | None) -> None:
    """Scheme, host, path, parameters in their order and fragment stay; a second time adds nothing."""
    path = path.partition("?")[0]
    address = f"https://shop.example/{path}"
    address += ("" if query is None else f"?{query}") + ("" if fragment is None else f"#{fragment}")
    tagged = TAGGER.tag(address)
    before, after = urlsplit(address), urlsplit(tagged)
    assert (after.scheme, after.netloc, after.path, after.fragment) == (
        before.scheme, before.netloc, before.path, before.fragment
    )  # fmt: skip
    old, new = (parse_qsl(part.query, keep_blank_values=True) for part in (before, after))
    assert new[: len(old)] == old
    present = {name.lower() for name, _ in old}
    assert new[len(old) :] == [(name, value) for name, value in TAGGER.parameters if name not in present]
    assert TAGGER.tag(tagged) == tagged
    # An email with this link has the same address in its HTML and in its text, and its tracking finds both.
    html, text = TAGGER.tag_message(f'<a href="{address.replace("&", "&amp;")}">x</a>', "")
    assert [link.href for link in links.find_links(html, text)] == [tagged.strip()]


@given(st.text(max_size=150))
def test_a_slug_has_letters_digits_and_single_hyphens(text: str) -> None:
    """A slug stays the same as a slug, and is no longer than a value may be."""
    slug = utm.to_slug(text)
    assert utm.to_slug(slug) == slug and len(slug) <= utm.MAX_VALUE_CHARACTERS
    assert "--" not in slug and slug.strip("-") == slug and not any(character in slug for character in " _&?#%/")


def test_values_with_fields() -> None:
    """Names are inserted as slugs; literal text stays, and parameters without a value are left out."""
    settings = {"source": "News Letter", "campaign": "{{campaign.name}}-{{ variant }}", "content": "{{ variant }}"}
    values = {"campaign.name": "  Spring Sale: 20 % off! ", "variant": ""}
    assert utm.resolve(settings, values) == (("utm_source", "News Letter"), ("utm_campaign", "spring-sale-20-off-"))
    assert utm.to_slug("Größe & Été 2026") == "größe-été-2026"
    errors = [utm.find_value_error(value) for value in ("{{ campaign.name }}", "{{ first_name }}", "{{ x", "{% if %}")]
    assert errors == [None, "{{ first_name }} is not a field of UTM parameters", "is invalid", "is invalid"]


def test_links_of_a_message() -> None:
    """All links of HTML and text get the parameters, escaped where they must be; comments and pictures do not."""
    html, text = TAGGER.tag_message(
        f'<p><a href="{PAGE}?a=1&amp;b={{{{ data.q }}}}">Shop</a><img src="{PAGE}.png"><!-- <a href="{PAGE}">x</a> -->'
        "<a href='{{ unsubscribe_url }}'>stop</a></p>",
        f"See {PAGE}?a=1&b={{{{ data.q }}}} or ({PAGE}).",
    )
    assert f'<a href="{PAGE}?a=1&amp;b={{{{ data.q }}}}&amp;{ADDED.replace("&", "&amp;")}">Shop' in html
    assert html.count("utm_source") == 1
    assert text == f"See {PAGE}?a=1&b={{{{ data.q }}}}&{ADDED} or ({PAGE}?{ADDED})."


def test_links_of_an_sms() -> None:
    """Links that are shortened get the parameters; others would only become longer."""
    body = f"Now: {PAGE} {{% for item in data.items %}}{PAGE}/{{{{ item.id }}}} {{% endfor %}}"
    assert TAGGER.tag_sms(body) == body.replace(f"{PAGE} ", f"{PAGE}?{ADDED} ", 1)
