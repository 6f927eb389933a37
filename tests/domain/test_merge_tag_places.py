"""Where a value is allowed: inside a URL it is one component, in a style one word."""

import pytest

from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError


def render_html(source: str, **values: object) -> str:
    """Render an HTML template with the values."""
    return merge.compile_template(source, "html").render(values)


@pytest.mark.parametrize(
    ("address", "filled"),
    [
        ("https://x.test/?q={{ v }}", "https://x.test/?q=a%20%26%20b%3Dc%2Fd%22"),
        ("https://x.test/{{ v | url_encode }}", "https://x.test/a+%26+b%3Dc%2Fd%22"),
        ("mailto:a@x.test?subject={{ v }}", "mailto:a@x.test?subject=a%20%26%20b%3Dc%2Fd%22"),
        ("mailto:{{ to }}?cc={{ to }}", "mailto:a+b@x.test?cc=a%2Bb%40x.test"),
        ("tel:{{ phone }}", "tel:+4930123"),
        ("https://x.test/{% if v %}{{ v }}{% endif %}", "https://x.test/a%20%26%20b%3Dc%2Fd%22"),
        ('https://x.test/?q={{ nobody | default: "a b" }}', "https://x.test/?q=a%20b"),
        ("{{ base }}?q={{ v }}", "https://y.test/p?q=a%20%26%20b%3Dc%2Fd%22"),
        ("{{ base }}{{ v }}", "https://y.test/pa%20%26%20b%3Dc%2Fd%22"),
    ],
)
def test_a_value_is_one_component_of_a_url(address: str, filled: str) -> None:
    """A value inside a URL is encoded; it cannot begin another parameter, path or header."""
    values = {"v": 'a & b=c/d"', "to": "a+b@x.test", "phone": "+4930123", "base": "https://y.test/p"}
    assert render_html(f"<a class=x href='{address}'>x</a>", **values) == f"<a class=x href='{filled}'>x</a>"


@pytest.mark.parametrize(
    "value",
    ["javascript:alert(1)", " JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "//evil.test", "", None, "x",
     "\x00javascript:alert(1)", "java\nscript:alert(1)", ["https://x.test"], {"a": 1}, "file:///etc/passwd"],
)  # fmt: skip
def test_unsafe_urls_from_data_are_replaced(value: object) -> None:
    """A URL from data that is not a safe absolute one becomes `#`, or an empty `src`."""
    assert render_html('<a href="{{ data.url }}">x</a>', data={"url": value}) == '<a href="#">x</a>'
    assert render_html('<a href="{% if data.url %}{{ data.url }}{% else %}https://x.test{% endif %}">x</a>',
                data={"url": value}) in ('<a href="#">x</a>', '<a href="https://x.test">x</a>')  # fmt: skip
    assert render_html('<img src="{{ data.url }}">', data={"url": value}) == '<img src="">'


@pytest.mark.parametrize("value", ["https://x.test/?a=1&b=2", "HTTP://x.test", "mailto:a@x.test", "tel:+1"])
def test_safe_urls_from_data_are_kept(value: str) -> None:
    """`http`, `https`, `mailto` and `tel` URLs from data are kept."""
    assert (
        render_html('<a href="{{ data.url }}">x</a>', data={"url": value})
        == f'<a href="{value.replace("&", "&amp;")}">x</a>'
    )


@pytest.mark.parametrize(
    "source",
    [
        '<a href="{{ contact.data.url }}">x</a>',
        '<a href="https://{{ email }}/">x</a>',
        '<a href="https://x.test{{ contact.data.more }}">x</a>',
        '<a href="{{ data.base }}{{ first_name }}">x</a>',
        '<a href="{% for one in contact.data.urls %}{{ one }}{% endfor %}">x</a>',
        '<a href="{{ nobody | default: contact.data.url }}">x</a>',
        "<td background={{ contact.data.url }}>x</td>",
        '<!--[if mso]><v:rect href="{{ contact.data.url }}"><![endif]-->',
    ],
)
def test_contact_data_cannot_be_the_host_of_a_link(source: str) -> None:
    """A template in which contact data could be the host is rejected, with line and column."""
    with pytest.raises(MergeError, match="may not say where a link leads") as error_info:
        merge.compile_template(f"<p>\n{source}</p>", "html")
    assert error_info.value.line == 2 and error_info.value.column == source.rindex("{{") + 1


@pytest.mark.parametrize(
    "tag", ["{{ [data.root].url }}", "{{ data[[data.root].url] }}", "{{ a | default: [data.root] }}"]
)
def test_variables_named_by_values_are_rejected(tag: str) -> None:
    """A name computed from a value is rejected: it could mean contact data."""
    with pytest.raises(MergeError, match="a value must begin with its name"):
        merge.compile_template(f'<a href="{tag}">x</a>', "html")


def test_text_like_an_attribute_is_not_a_url() -> None:
    """`href=` in text or in another attribute's value is not encoded as a URL."""
    assert render_html("<p>set href = {{ v }} here</p>", v="a b/c") == "<p>set href = a b/c here</p>"
    assert render_html('<p title="href={{ v }}">x</p>', v="a b/c") == '<p title="href=a b/c">x</p>'


def test_a_value_in_a_style_is_one_word() -> None:
    """A value cannot add a rule to a style, and the URL of a picture stays inside `url()`."""
    evil = "red;background:url(https://evil.test)}body{x"
    assert (
        render_html('<p style="color:{{ v }}">x</p>', v=evil)
        == '<p style="color:redbackgroundurlhttpsevil.testbodyx">x</p>'
    )
    output = render_html("<style>a{b:url('{{ u }}')}</style>", u="https://x.test/');x:y('")
    assert output == "<style>a{b:url('https://x.test/%27%29;x:y%28%27')}</style>"


def test_a_url_template_is_checked_like_one_in_html() -> None:
    """The URL of a button, a template by itself, is checked for contact data as the host."""
    assert merge.find_error("{{ contact.data.url }}", "url") is not None
    assert merge.find_error("https://x.test/{{ contact.data.code }}", "url") is None


@pytest.mark.parametrize(
    "address",
    [
        "{% if nobody %}{% endif %}javascript:alert(1)",
        "{% if nobody %}/{% else %}javascript:alert(1){% endif %}",
        "{% unless nobody %} JaVa&#9;Script:alert(1){% endunless %}",
        "{% comment %}x{% endcomment %}javascript:alert(1)",
        "{%- comment -%}x{%- endcomment -%}data:text/html,x",
        "{% raw %}javascript:{% endraw %}alert(1)",
        "{% if nobody %}{% endif %}javascript{% if nobody %}{% endif %}:alert(1)",
        "java{% comment %}x{% endcomment %}script:alert(1)",
        "{{ data.url }}{% if nobody %}{% endif %}javascript:alert(1)",
        "{% for one in data.list %}https://x.test/{% else %}vbscript:x{% endfor %}",
    ],
)
@pytest.mark.parametrize("attribute", ["href", "src"])
def test_logic_cannot_build_an_unsafe_scheme(attribute: str, address: str) -> None:
    """Whichever parts of a URL the tags leave out, no other scheme than the allowed ones can result."""
    with pytest.raises(MergeError, match="address"):
        merge.compile_template(f'<a {attribute}="{address}">x</a>', "html")
    assert merge.find_error(address, "url") is not None


@pytest.mark.parametrize(
    "address",
    [
        "https:{% if zz %}/{% endif %}//{{ contact.data.host }}",
        "https://{% if zz %}/{% endif %}{{ contact.data.host }}",
        "https://{% comment %}?{% endcomment %}{{ contact.data.host }}",
        "https://{% raw %}{% endraw %}{{ email }}/a",
        "{% if zz %}https://x.test/{% endif %}{{ contact.data.host }}",
        "{% if zz %}https://{% endif %}mailto:{{ email }}",
        "{% if zz %}https:{% endif %}/{{ contact.data.host }}",
        "https:/{{ contact.data.host }}",
        "https:///{{ contact.data.host }}",
        "https:\\\\{{ contact.data.host }}",
        "https:{{ contact.data.host }}",
        "/&#9;/{{ contact.data.host }}",
    ],
)
def test_logic_cannot_make_contact_data_the_host(address: str) -> None:
    """Contact data is rejected as a host, whatever the tags leave out and however the slashes are written."""
    with pytest.raises(MergeError, match=r"host has ended|where a link leads"):
        merge.compile_template(f'<a href="{address}">x</a>', "html")


@pytest.mark.parametrize(
    "address",
    [
        "{% if data.url %}{{ data.url }}{% else %}https://x.test/{{ email }}{% endif %}",
        "https://x.test/{% if email %}{{ email }}{% endif %}?a={% case email %}{% when 'a' %}b{% endcase %}",
        "{{ data.url }}{% if data.more %}?more=a:b{% endif %}",
        "https://{{ data.host }}:8080/a:b",
        "mailto:{{ email }}{% if data.more %}?subject=a{% endif %}",
        "{{ unsubscribe_url }}",
        "#part",
    ],
)
def test_logic_is_allowed_after_the_host(address: str) -> None:
    """After the host any tags are allowed, and each branch may be a complete URL."""
    assert merge.find_error(f'<a href="{address}">x</a>', "html") is None
    assert merge.find_error(address, "url") is None


@pytest.mark.parametrize(
    "source",
    [
        '<a href="{% if nobody %}">{% endif %}javascript:alert(1)">x</a>',
        '{% if nobody %}<p title="{% endif %}x">',
        '{% if nobody %}<p title="{% else %}x">{% endif %}',
        '<p title="{% raw %}{% endif %}">x</p>',
    ],
)
def test_a_block_ends_in_the_attribute_it_begins_in(source: str) -> None:
    """A block that ends outside its attribute is rejected, as it could add attributes to the element."""
    with pytest.raises(MergeError):
        merge.compile_template(source + ("{% endraw %}" if "raw" in source else ""), "html")


def test_urls_are_limited_to_2000_characters() -> None:
    """Tags do not count; the error names the maximum."""
    assert merge.find_error(f'<a href="https://x.test/{"a" * 1_985}{{{{ email }}}}">x</a>', "html") is None
    error = merge.find_error(f'<a href="https://x.test/{"a" * 1_986}{{{{ email }}}}">x</a>', "html")
    assert error == "an address is too long (maximum is 2000 characters) (line 1, column 10)"
