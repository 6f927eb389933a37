"""Merge tags: values are never parsed as templates, and errors name their line and column."""

import html as stdlib_html
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.content.designs import merge
from appliance.content.designs.merge_limits import Context, MergeError

CONTEXTS: tuple[Context, ...] = ("html", "text", "header")
SYNTAX = st.text(st.sampled_from("{}%|'\"._ ab17*$<>&-#[]()\n"), max_size=60)
VALUE = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), SYNTAX)

# Attacks on other template languages (T01): none may compute, read files or reach into objects here
HOSTILE = [
    "{{7*7}}",
    "{{7*'7'}}",
    "{{ env('TRUST_CANARY') }}",
    "{{ env.TRUST_CANARY }}",
    "{{ contact.__class__.__mro__ }}",
    "{{ contact['__class__'] }}",
    "{{ contact.data.__class__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ contact|attr('__class__') }}",
    "{{ contact | map: '__class__' }}",
    "{{ contact.data.get('x') }}",
    "{% include '/etc/passwd' %}",
    "{% render '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
    "{% import os %}",
    "{% assign x = 7 %}{{ x | times: 7 }}",
    "{% capture x %}49{% endcapture %}{{ x }}",
    "{% liquid echo 7 | times: 7 %}",
    "{{ 7 | times: 7 }}",
    "{{ range.constructor('return process.env')() }}",
    "${7*7}",
    "<%= 7*7 %>",
    "#{7*7}",
    "@(7*7)",
]


def normalize_newlines(text: str) -> str:
    """Return a text with `LF` as its only line break, as the output has it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def render(source: str, context: Context = "text", **values: Any) -> str:
    """Compile a template and render it with the values."""
    return merge.compile_template(source, context).render(values)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("source", HOSTILE)
def test_hostile_templates_are_not_evaluated(source: str, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template of another language is rejected or stays text; no code runs, no file or object is read (T01)."""
    monkeypatch.setenv("TRUST_CANARY", "zq9canary")
    contact = {"first_name": "Ann", "data": {"plan": "pro"}}
    try:
        output = render(source, context, contact=contact, self={}, env={})
    except MergeError:
        return
    assert not any(word in output for word in ("49", "7777777", "zq9canary", "root:", "<class", "class"))


@pytest.mark.parametrize("source", HOSTILE)
@pytest.mark.parametrize("context", CONTEXTS)
def test_values_are_never_parsed(context: Context, source: str) -> None:
    """A value that looks like a template is output as it is, in every context and through filters."""
    filled = render("{{ contact.first_name }}|{{ x | default: 'y' | strip }}", context, contact={"first_name": source},
                    x=source)  # fmt: skip
    text = stdlib_html.unescape(filled) if context == "html" else filled
    assert text == f"{source}|{source}"


@given(value=VALUE)
@example("{{ secret }}")
@example("{% if secret %}{{ secret }}{% endif %}")
def test_values_do_not_evaluate_tags(value: str) -> None:
    """No value causes other values or tags to be evaluated."""
    assert render("{{ a }}{{ b }}", a=value, b="end", secret="zq9canary") == normalize_newlines(value) + "end"


@given(value=VALUE)
@example("<script>alert(1)</script>")
@example("\" onload='x' &amp; <")
def test_html_values_are_escaped(value: str) -> None:
    """No character of a value can open a tag, close an attribute or begin an entity."""
    output = render("{{ a }}", "html", a=value)
    assert not set(output) & set("<>\"'")
    assert stdlib_html.unescape(output) == stdlib_html.unescape(stdlib_html.escape(normalize_newlines(value)))


@given(value=VALUE)
def test_text_values_are_not_escaped(value: str) -> None:
    """The text part has the value unescaped."""
    assert render("<{{ a }}>", a=value) == f"<{normalize_newlines(value)}>"


@pytest.mark.parametrize("evil", ["a\r\nBcc: v@x.y", "a\x85b", "a\u2028b\u2029c", "a\x0bb\x0cc", "a\0b", "a\x7f\x9fb"])
def test_header_values_have_no_control_characters(evil: str) -> None:
    """Runs of control characters become one space in a header, whether from a value or from the template."""
    for output in (render("{{ a }}", "header", a=evil), render(evil.replace("\0", ""), "header")):
        assert output.isprintable() and not set(output) & set("\r\n\x0b\x0c\x85\u2028\u2029\0")


@pytest.mark.parametrize(
    ("source", "line", "column", "words"),
    [
        ("Hi {{ name | shout }}", 1, 14, "shout"),
        ("a\n\n  {{ x | nope }}", 3, 10, "nope"),
        ("a\n {% include 'x' %}", 2, 5, "include"),
        ("a\n {% assign x = 1 %}", 2, 5, "assign"),
        ("{{ 7*7 }}", 1, 5, "*"),
        ("x\ny {{ f(1) }}", 2, 7, "("),
        ("{% if x %}never closed", 1, 1, "endif"),
        ("Hi {{ name", 1, 4, "}}"),
        ("{% endif %}", 1, 4, "endif"),
    ],
)
def test_errors_name_line_and_column(source: str, line: int, column: int, words: str) -> None:
    """A syntax error names the unsupported word with its line and column, counted from 1."""
    with pytest.raises(MergeError) as caught:
        merge.compile_template(source, "html")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert words in caught.value.message
    assert caught.value.describe().endswith(f"(line {line}, column {column})")


@pytest.mark.parametrize("name", ["contact._x", "contact.__class__", "_x", "contact.data._y.z", "contact['_x']"])
def test_names_with_a_leading_underscore_are_rejected(name: str) -> None:
    """A name with a part that begins with an underscore raises MergeError, at any depth."""
    with pytest.raises(MergeError, match="_"):
        merge.compile_template(f"{{{{ {name} }}}}", "text")


@pytest.mark.parametrize(
    "source", ["{{ nobody }}", "{{ contact.nobody.at.all }}", "{{ a.b[0].c }}", "{{ nobody | upcase }}"]
)
def test_unknown_variables_are_empty(source: str) -> None:
    """An unknown variable renders as nothing, also through a filter; `default` replaces it."""
    assert render(f"[{source}]", contact={"first_name": "Ann"}) == "[]"
    assert render("{{ nobody | default: 'there' }}") == "there"


def test_find_unknown_variables() -> None:
    """Variables whose first part is unknown are returned, so that preflight can warn about them."""
    compiled = merge.compile_template("{{ contact.first_name }} {{ contcat.first_name }} {{ first_name }}", "text")
    assert compiled.variables == ["contact.first_name", "contcat.first_name", "first_name"]
    assert merge.find_unknown_variables(compiled.variables) == ["contcat.first_name"]


@pytest.mark.parametrize(
    ("source", "values", "expected"),
    [
        ("{% if a %}x{% elsif b %}y{% else %}z{% endif %}", {"b": True}, "y"),
        ("{% unless a %}x{% endunless %}", {}, "x"),
        ("{% case a %}{% when 1 %}one{% when 2, 3 %}few{% else %}many{% endcase %}", {"a": 3}, "few"),
        ("{% for i in a %}{{ i }},{% endfor %}", {"a": ["x", "y"]}, "x,y,"),
        ("{% comment %}{{ a }}{% endcomment %}-", {"a": 1}, "-"),
        ("{% raw %}{{ a }}{% endraw %}", {"a": 1}, "{{ a }}"),
        ("{{ a | upcase }}{{ a | downcase }}{{ a | capitalize }}", {"a": "aB"}, "ABabAb"),
        ("{{ a | strip | truncate: 5 }}", {"a": "  abcdefgh "}, "ab..."),
        ("{{ a | replace: 'x', 'y' | size }}", {"a": "axb"}, "3"),
        ("{{ a | join: '-' }} {{ a | first }} {{ a | last }}", {"a": [1, 2]}, "1-2 1 2"),
        ("{{ '2026-11-20' | date: '%d.%m.%Y' }} {{ a | round }}", {"a": 2.6}, "20.11.2026 3"),
        ("{{ a | url_encode }}", {"a": "a b&c"}, "a+b%26c"),
    ],
)
def test_supported_tags_and_filters(source: str, values: dict[str, Any], expected: str) -> None:
    """Each tag and filter of the language does what its name says."""
    assert render(source, **values) == expected


def test_the_escape_filter_does_not_escape_twice() -> None:
    """Values in HTML are escaped anyway; the `escape` filter adds nothing."""
    assert render("{{ a | escape }}", "html", a="<b>") == "&lt;b&gt;"


@pytest.mark.parametrize(
    "source",
    [
        "{{ '<b>' }}",
        "{{ nobody | default: '<b>' }}",
        "{{ nobody | default: '<b>' | upcase | downcase }}",
        "{{ '<b>' | strip | escape }}",
        "{{ 'x' | replace: 'x', '<b>' }}",
        "{{ a | join: '<b>' | replace: '1' | replace: '2' }}",
        "{{ '2026-11-20' | date: '<b>' }}",
        "{{ 'now' | date: '<b>' }}",
        "{{ 'abc' | truncate: 0, '<b>' }}",
        "{% for one in a limit: 1 %}{{ '<b>' }}{% endfor %}",
        "{% case '<b>' %}{% when '<b>' %}{{ '<b>' }}{% endcase %}",
        "{% if x == '<b>' %}{{ x | default: '<b>' }}{% endif %}",
        "{% unless x %}{% else %}{{ nobody | default: '<b>' }}{% endunless %}",
    ],
)
def test_string_literals_are_escaped_like_values(source: str) -> None:
    """A string in a tag is text: in HTML it can open no element and close no attribute."""
    assert render(source, "html", a=[1, 2], x="<b>") == "&lt;b&gt;"
    assert render(source, "text", a=[1, 2], x="<b>") == ("<b>" if "escape" not in source else "&lt;b&gt;")


def test_string_literals_do_not_end_an_attribute() -> None:
    """A quote in a default value stays inside the attribute."""
    output = render("""<p title="{{ nobody | default: 'a" onclick="b' }}">""", "html")
    assert output == '<p title="a&#34; onclick=&#34;b">'


def test_threads_do_not_share_values() -> None:
    """A compiled template rendered by many threads never mixes their values (T06)."""
    compiled = merge.compile_template("{% for i in n %}{{ contact.name }};{% endfor %}{{ contact.data.mark }}", "html")

    def renders_own_values(number: int) -> bool:
        values = {"n": [1, 2, 3], "contact": {"name": f"n{number}", "data": {"mark": f"m{number}"}}}
        return compiled.render(values) == f"n{number};" * 3 + f"m{number}"

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(renders_own_values, range(2000)))


@given(source=SYNTAX, context=st.sampled_from(CONTEXTS))
def test_any_source_renders_or_raises_merge_error(source: str, context: Context) -> None:
    """Any text is a template or raises MergeError, never another error."""
    try:
        merge.compile_template(source, context).render({"a": "<x>", "b": [1, 2], "contact": {"a": 1}})
    except MergeError as error:
        assert error.message


@pytest.mark.parametrize("zone", ["BRST", "EDT", "XYZ"])
def test_a_date_with_an_unknown_zone_is_no_date(zone: str, recwarn: pytest.WarningsRecorder) -> None:
    """It is shown unchanged like any text that is not a date, and nothing is warned of; known zones are read."""
    at = f"2026-05-01 10:00 {zone}"
    assert merge.compile_template("{{ data.at | date: '%Y' }}", "text").render({"data": {"at": at}}) == at
    assert merge.compile_template(f"{{{{ '{at}' | date: '%Y' }}}}", "text").render({}) == at
    for known in ("UTC", "GMT", "Z", "+02:00", "EST+3", ""):
        source = f"{{{{ '2026-05-01 10:00 {known}' | date: '%Y' }}}}"
        assert merge.compile_template(source, "text").render({}) == "2026"
    assert not recwarn.list
