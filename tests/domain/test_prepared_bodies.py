"""Bodies that are encoded once and filled with values: decoded they equal the rendered template."""

import quopri
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.content.designs import merge
from appliance.content.designs.merge_limits import Context, MergeError, render_deadline
from appliance.sending.delivery import mime
from appliance.sending.messages import encoded_email
from appliance.sending.messages.encoded_email import CachedHeader, EncodedBody
from tests.domain.test_precompiled_templates import VALUES, templates

WORDS = st.lists(
    st.one_of(
        st.sampled_from([".", "..", "From ", "\n", "\r\n", " ", "\t", "=", "é", "😀", "x" * 74, "x" * 75, "x" * 76]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    ),
    max_size=12,
).map("".join)


def decode(body: bytes) -> str:
    """Decode a quoted-printable body, without its final line end."""
    assert body.endswith(b"\r\n") and body.isascii()
    assert body.count(b"\r") == body.count(b"\n") == body.count(b"\r\n")
    return quopri.decodestring(body).decode().replace("\r\n", "\n").removesuffix("\n")


def normalize(text: str) -> str:
    """Return a text with LF line ends, without one at its end."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")


def has_valid_lines(body: bytes) -> bool:
    """Return whether no line is long, begins with a dot or `From `, or ends in space."""
    lines = body.split(b"\r\n")
    return all(len(line) <= 78 and not line.startswith((b".", b"From ")) and line == line.rstrip() for line in lines)


@given(templates(), VALUES, st.sampled_from(("html", "text")))
def test_an_encoded_body_equals_the_rendered_text(source: str, values: dict[str, Any], context: Context) -> None:
    """The decoded body equals the rendered text for any template and values, also from the cache."""
    try:
        compiled = merge.compile_template(source, context)
        expected = compiled.render(values)
    except MergeError:
        return
    body = EncodedBody(compiled)
    bodies = {body.fill(values) for _ in range(12)}  # by interpretation, by the generated function, and from the cache
    assert len(bodies) == 1, "a retry would send other bytes"
    for encoded in bodies:
        assert decode(encoded) == normalize(expected)
        assert has_valid_lines(encoded)
        assert not body.is_single_spaced or mime.is_single_spaced(encoded)


@pytest.mark.parametrize(
    "source",
    [
        "Hi {{ contact.name | default: 'you' }}!",
        "{% if contact.name %}[{{ email }}]{% else %}-{% endif %}",
        "{{ contact.name.first }}",
        "{% for part in contact.name %}{{ part }}{% endfor %}",
        "{{ contact.absent }}",
        "Hi",
    ],
)
def test_a_cached_subject_is_the_recipient_s_own(source: str) -> None:
    """Whatever was rendered before, a subject equals the rendered template, also for values that compare as equal."""
    compiled = merge.compile_template(source, "header")
    header = CachedHeader(compiled)
    for name in ("Ann", "", None, 1, True, 1.0, "1", "True", {"first": "Bo"}, ["a"], "x" * 400, "Ann", 0, False):
        for email in ("a@example.org", "b@example.org"):
            values = {"contact": {"name": name}, "email": email}
            assert header.render(values, render_deadline()) == compiled.render(values)


@given(WORDS, st.lists(st.tuples(WORDS, WORDS), max_size=4))
@example(".", [(".", "."), ("From me", " ")])
@example("a" * 75, [("", "b" * 75), ("c" * 76, "\n")])
@example("é" * 25, [("=" * 25, " \n")])
def test_any_text_and_values_can_be_joined(first: str, rest: list[tuple[str, str]]) -> None:
    """Literal text and values of any kind give valid lines."""
    source = first.replace("{", "") + "".join(
        f"{{{{ data.v{number} }}}}{literal.replace('{', '')}" for number, (_, literal) in enumerate(rest)
    )
    values = {"data": {f"v{number}": value for number, (value, _) in enumerate(rest)}}
    compiled = merge.compile_template(source, "text")
    encoded = EncodedBody(compiled).fill(values)
    assert decode(encoded) == normalize(compiled.render(values))
    assert has_valid_lines(encoded)


@given(st.text("AaFrom09 :/._@+,-=&\n\té", max_size=90) | st.text("aF. ", max_size=80).map("From {}".format))
@example("From me")
@example("a" * 74)
@example("a" * 75)
@example("Ana  Maria")
@example("Ana ")
def test_plain_texts_need_no_encoding(text: str) -> None:
    """A text that is inserted as it is has the same bytes as an encoded one."""
    if encoded_email.PLAIN_TEXT.fullmatch(text):
        assert mime.encode_fragment(text) == text.encode() + mime.SOFT_BREAK
        assert mime.is_single_spaced(mime.encode_fragment(text))


def test_templates_with_loops_are_rendered_whole() -> None:
    """Loops are rendered and then encoded, and the limits of the template apply."""
    compiled = merge.compile_template("{% for one in data.list %}[{{ one }}]{% endfor %}", "text")
    assert EncodedBody(compiled).fill({"data": {"list": ["a", "é"]}}) == b"[a][=C3=A9]\r\n"
    with pytest.raises(MergeError):
        EncodedBody(merge.compile_template("{{ first_name }}" * 30, "text")).fill({"first_name": "x" * 60_000})


def test_encoded_values_are_not_mixed_up() -> None:
    """Repeated values in 10,000 messages are each contact's own."""
    compiled = merge.compile_template("{{ first_name }} {{ first_name }} <{{ email }}>", "html")
    body = EncodedBody(compiled)
    for number in range(10_000):
        values = {"first_name": f"N{number % 7}&", "email": f"p{number}@example.org"}
        expected = f"N{number % 7}&amp; N{number % 7}&amp; <p{number}@example.org>"
        assert decode(body.fill(values)) == expected


@pytest.mark.parametrize(
    "source",
    [
        "".join(f"{{{{ contact.data.v{number} }}}}," for number in range(300)),  # more than the generator takes
        "".join(f"{{% if contact.data.v{number} %}}[{number}" for number in range(8)) + "]{% endif %}" * 8,
        "".join(f"{{% if contact.data.v{number} %}}{{{{ email }}}}{{% else %}}-{{% endif %}}" for number in range(450)),
        "{{ contact.data.nested.deep.value }}{{ contact.data.nested.deep.other }}{{ contact.data.v0.x }}{{ none.x }}",
        "{% if contact.data.list %}{{ email }}{% else %}none{% endif %}{{ contact.data.list.x }}",
        "{% if email %}{{ contact.data.v1 }}{% else %}{{ contact.data.v2 }}{% endif %}{{ contact.data.v2 }}",
    ],
)
def test_templates_of_every_size_are_filled_alike(source: str) -> None:
    """Templates with many tags, deep conditions or missing values give the same text as Liquid renders."""
    data = {f"v{number}": number for number in range(0, 300, 2)} | {"nested": {"deep": {"value": "<d>"}}, "list": [1]}
    for values in (
        {"email": "a@b.example", "contact": {"data": data}},
        {"email": None, "contact": {"data": {}}},
        {"email": "c@d.example", "contact": {"data": data | {"list": {"x": "y"}, "nested": "text"}}},
    ):
        compiled = merge.compile_template(source, "html")
        body = EncodedBody(compiled)
        bodies = {body.fill(values) for _ in range(12)}
        assert [decode(encoded) for encoded in bodies] == [normalize(compiled.render_whole(values))]


def test_encode_fragment() -> None:
    """A fragment is whole lines, so that its neighbours cannot cut a dot or an escape."""
    assert mime.encode_fragment("") == b""
    assert mime.encode_fragment("a\n") == b"a\r\n"
    assert mime.encode_fragment(". é") == b"=2E =C3=A9=\r\n"
