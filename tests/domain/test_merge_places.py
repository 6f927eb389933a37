"""What a value may do where it stands: in an address it is one part of it, in styles a word, in a header one line."""

import pytest

from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError


def html(source: str, **values: object) -> str:
    """Fill a template of HTML."""
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
def test_a_value_is_one_part_of_an_address(address: str, filled: str) -> None:
    """Within an address a value cannot begin another parameter, path or header."""
    values = {"v": 'a & b=c/d"', "to": "a+b@x.test", "phone": "+4930123", "base": "https://y.test/p"}
    assert html(f"<a class=x href='{address}'>x</a>", **values) == f"<a class=x href='{filled}'>x</a>"


@pytest.mark.parametrize(
    "value",
    ["javascript:alert(1)", " JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "//evil.test", "", None, "x",
     "\x00javascript:alert(1)", "java\nscript:alert(1)", ["https://x.test"], {"a": 1}, "file:///etc/passwd"],
)  # fmt: skip
def test_an_address_from_data_leads_to_the_web_or_nowhere(value: object) -> None:
    """Where a value begins an address it must be one that a reader may be led to."""
    assert html('<a href="{{ data.url }}">x</a>', data={"url": value}) == '<a href="#">x</a>'
    assert html('<a href="{% if data.url %}{{ data.url }}{% else %}https://x.test{% endif %}">x</a>',
                data={"url": value}) in ('<a href="#">x</a>', '<a href="https://x.test">x</a>')  # fmt: skip
    assert html('<img src="{{ data.url }}">', data={"url": value}) == '<img src="">'


@pytest.mark.parametrize("value", ["https://x.test/?a=1&b=2", "HTTP://x.test", "mailto:a@x.test", "tel:+1"])
def test_an_address_from_data_is_kept(value: str) -> None:
    """Addresses of the web, of mail and of phones lead where they say."""
    assert (
        html('<a href="{{ data.url }}">x</a>', data={"url": value}) == f'<a href="{value.replace("&", "&amp;")}">x</a>'
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
def test_a_contact_does_not_say_where_a_link_leads(source: str) -> None:
    """A template that would let a contact's data be a host is refused, with the place."""
    with pytest.raises(MergeError, match="may not say where a link leads") as found:
        merge.compile_template(f"<p>\n{source}</p>", "html")
    assert found.value.line == 2 and found.value.column == source.rindex("{{") + 1


@pytest.mark.parametrize(
    "tag", ["{{ [data.root].url }}", "{{ data[[data.root].url] }}", "{{ a | default: [data.root] }}"]
)
def test_a_value_whose_name_is_a_value_is_refused(tag: str) -> None:
    """Whose data it is would be known with somebody's values only: it may be a contact's, and lead somewhere."""
    with pytest.raises(MergeError, match="a value must begin with its name"):
        merge.compile_template(f'<a href="{tag}">x</a>', "html")


def test_only_addresses_are_addresses() -> None:
    """What looks like an attribute in running text is text."""
    assert html("<p>set href = {{ v }} here</p>", v="a b/c") == "<p>set href = a b/c here</p>"
    assert html('<p title="href={{ v }}">x</p>', v="a b/c") == '<p title="href=a b/c">x</p>'


def test_a_value_in_a_style_is_a_word() -> None:
    """Data says a colour or a size, not another rule, and a picture's address stays in its brackets."""
    evil = "red;background:url(https://evil.test)}body{x"
    assert (
        html('<p style="color:{{ v }}">x</p>', v=evil) == '<p style="color:redbackgroundurlhttpsevil.testbodyx">x</p>'
    )
    found = html("<style>a{b:url('{{ u }}')}</style>", u="https://x.test/');x:y('")
    assert found == "<style>a{b:url('https://x.test/%27%29;x:y%28%27')}</style>"


def test_an_address_alone_is_checked_like_one_in_a_mail() -> None:
    """The address of a design's button is a template of its own."""
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
def test_logic_makes_no_other_scheme(attribute: str, address: str) -> None:
    """Whichever words of an address logic leaves out, what is left leads to the web, to mail or to a phone."""
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
def test_logic_does_not_let_a_contact_say_the_host(address: str) -> None:
    """A contact's data stands in no host, whatever logic leaves out and however the slashes are written."""
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
def test_logic_may_say_the_rest_of_an_address(address: str) -> None:
    """Behind the host logic does what it likes, and each branch may be a whole address."""
    assert merge.find_error(f'<a href="{address}">x</a>', "html") is None
    assert merge.find_error(address, "url") is None


@pytest.mark.parametrize(
    "source",
    [
        '<p title="{% comment %}">{% endcomment %}" onclick="alert(1)">x</p>',
        '<a href="{% if nobody %}">{% endif %}javascript:alert(1)">x</a>',
        '{% if nobody %}<p title="{% endif %}x">',
        '{% if nobody %}<p title="{% else %}x">{% endif %}',
        '<p title="{% raw %}{% endif %}">x</p>',
    ],
)
def test_a_block_does_not_take_the_end_of_an_attribute(source: str) -> None:
    """A block that begins in an attribute ends there, so nothing else becomes part of the element."""
    with pytest.raises(MergeError):
        merge.compile_template(source + ("{% endraw %}" if "raw" in source else ""), "html")


def test_an_address_has_a_length() -> None:
    """Up to 2,000 characters besides its tags, in words that say so."""
    assert merge.find_error(f'<a href="https://x.test/{"a" * 1_985}{{{{ email }}}}">x</a>', "html") is None
    found = merge.find_error(f'<a href="https://x.test/{"a" * 1_986}{{{{ email }}}}">x</a>', "html")
    assert found == "an address is too long (maximum is 2000 characters) (line 1, column 10)"
