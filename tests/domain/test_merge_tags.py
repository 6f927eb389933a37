"""The scanner of merge tags finds the tags that the renderer's lexer finds, in linear time (T01, T02, T27)."""

import itertools
import time
from html import unescape

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from appliance.content.designs import compiled_template, links, markup, merge, merge_limits
from appliance.content.designs.merge_limits import MergeError
from appliance.sending.messages import compose
from appliance.sending.messages.compose import MessageSource

PIECES = (
    "{{ v }}", "{{v}}", "{{- v -}}", "{{ '}' }}", '{{ "%}" }}', "{{", "}}", "{", "}", "{%", "%}", "%", "-", '"', "'",
    "x", " ", "\n", "{% raw %}", "{%- raw -%}", "{%raw%}", "{% endraw %}", "{%-endraw-%}", "{% comment %}",
    "{%- comment -%}",
    "{% endcomment %}", "{% comment x %}", "{% endcomment x %}", "{% raw x %}", "{% if v %}", "{% endif %}",
    "{% else %}", "<a href=\"", "\">x</a>", "<!--", "-->", "raw", "endraw",
)  # fmt: skip
NOISE = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
BLOCKS = st.one_of(
    NOISE,
    st.just("{{ v }}"),
    NOISE.map(lambda text: f"{{% raw %}}{text}{{% endraw %}}"),
    NOISE.map(lambda text: f"{{% comment %}}{text}{{% endcomment %}}"),
    st.lists(NOISE, max_size=3).map(lambda texts: "{% if v %}" + "{{ v }}".join(texts) + "{% endif %}"),
)
SOURCES = st.lists(BLOCKS, max_size=8).map("".join)
MARK = "\ue001"


def output_starts(source: str) -> list[int]:
    """Return where the outputs of a text begin, according to the scanner."""
    return [tag.start for tag in markup.find_tags(source) if not tag.name and source.startswith("{{", tag.start)]


@given(SOURCES)
def test_scanner_and_renderer_agree_on_the_output_tags(source: str) -> None:
    """In every source that compiles, the outputs are the same ones."""
    try:
        compiled = compiled_template.CompiledTemplate(source, "text")
    except MergeError:
        assume(False)
    nodes = compiled._template.nodes
    assert output_starts(source) == sorted(output.offset for output in compiled_template.iterate_outputs(nodes))


@given(SOURCES.filter(lambda source: "{% if" not in source and "-%" not in source and "{%-" not in source))
def test_what_the_scanner_calls_text_is_what_is_rendered(source: str) -> None:
    """Rendered is the text between the tags, with each output replaced by its value, and nothing of comments."""
    source = source.replace("{{- v -}}", "{{ v }}").replace("{{ '}' }}", "{{v}}").replace('{{ "%}" }}', "{{v}}")
    try:
        rendered = merge.compile_template(source, "text").render({"v": MARK})
    except MergeError:
        assume(False)
    parts = markup.split_tags(source)
    assert rendered == "".join(
        part if not index % 2 else MARK if part.startswith("{{") else "" for index, part in enumerate(parts)
    )


@given(SOURCES)
def test_splitting_loses_nothing(source: str) -> None:
    """The parts of any text are the text again, its mask has its length, and the tags are sorted and apart."""
    assert "".join(markup.split_tags(source)) == source and len(markup.mask_tags(source)) == len(source)
    tags = markup.find_tags(source)
    assert all(tag.end <= after.start for tag, after in itertools.pairwise(tags))
    for tag in tags:
        assert list(markup.tags_between(tags, tag.start, tag.end)) == [tag]


HALF = 500_000
LARGE = [
    "{% raw %}" + "{{" * HALF + "{% endraw %}",
    "{% raw %}" + "{%" * HALF + "{% endraw %}",
    "{% raw %}" + "{% raw %}" * (HALF // 5) + "{% endraw %}",
    "{% comment %}{% raw %}" + "{{" * HALF + "{% endraw %}{% endcomment %}",
    "<a href='{% raw %}" + "{{" * 900 + "{% endraw %}'>x</a>" * 1 + "{% raw %}" + "{{ '" * (HALF // 3) + "{% endraw %}",
]


@pytest.mark.parametrize("source", LARGE, ids=["outputs", "tags", "raw", "comment", "quotes"])
def test_a_megabyte_in_a_raw_block_takes_no_time(source: str) -> None:
    """What a raw block contains is not searched again from each of its braces."""
    began = time.thread_time()
    for body in (source, f"<p>{source}</p>"):
        compiled = compose.try_compile(MessageSource("s", body, marketing=True))
        if not isinstance(compiled, merge.RefusedTemplate):
            links.rewrite_links(compiled.html.source, compiled.text.source, ["https://x.test/"], "https://t.test")
    merge.find_error(source, "header")
    merge_limits.find_code_error([source])
    assert time.thread_time() - began < 3


@pytest.mark.parametrize(
    "source", ["{{" * HALF, "{%" * HALF, "{% raw %}" * 100_000, "{% comment %}" * 70_000, "{%   " * 200_000]
)
def test_any_text_is_split_in_no_time(source: str) -> None:
    """A text that is not a template is split in linear time too."""
    began = time.thread_time()
    assert "".join(markup.split_tags(source)) == source
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    "source",
    [
        '<p>{% raw %}{{{% endraw %}<a href="{{contact.data.u}}">x</a>}}</p>',
        '<p>{% raw %}{%{% endraw %}<a href="{{contact.data.u}}">x</a>%}</p>',
        '<a href="{% raw %}{{{% endraw %}{{contact.data.u}}">x</a>}}',
        '<p>{% comment %}<a title="{% endcomment %}</p><a href="{{contact.data.u}}">x</a>',
        '{% raw %}{% comment %}{% endraw %}<a href="{{contact.data.u}}">x</a>{% raw %}{% endcomment %}{% endraw %}',
    ],
)
def test_a_raw_block_hides_no_link_of_a_contact(source: str) -> None:
    """A contact's data may not say where a link leads, whatever stands in raw blocks and comments around it (T27)."""
    for body in (source, f"<html><body>{source}</body></html>"):
        with pytest.raises(MergeError, match="contact"):
            compose.compile_message(MessageSource("s", body))
    with pytest.raises(MergeError, match="contact"):
        merge.compile_template(source, "html")


def test_a_raw_block_is_sanitized_like_other_html() -> None:
    """What stands in braces in a raw block is shown as it is, so scripts in it are removed (T03)."""
    body = '<p>{% raw %}{{<script>alert(1)</script><b onclick="x()">ok</b>}}{% endraw %}</p>'
    html = compose.fill(compose.compile_message(MessageSource("s", body)), {}).html
    assert "script" not in html and "onclick" not in html and "{{<b>ok</b>}}" in unescape(html)


def test_a_comment_hides_no_attribute_from_the_sanitizer() -> None:
    """What stands after a comment in an attribute is sanitized as it is rendered (T03)."""
    body = '<p title="{% comment %}">{% endcomment %}" onclick="alert(1)">x</p>'
    assert "onclick" not in compose.fill(compose.compile_message(MessageSource("s", body)), {}).html


def test_a_raw_block_hides_no_condition_around_the_unsubscribe_link() -> None:
    """An unsubscribe link that only some recipients see is not enough, whatever raw blocks say."""
    hidden = "{{ unsubscribe_url }} {{ brand.physical_address }}"
    body = "<p>{% raw %}{{{% endraw %}{% if first_name == 'A' %}}}{% raw %}{% endraw %}" + hidden + "{% endif %}"
    html = compose.fill(
        compose.compile_message(MessageSource("s", body, marketing=True)), {"unsubscribe_url": "https://u.test/u"}
    ).html
    assert html.count("https://u.test/u") == 1


def test_braces_in_a_raw_block_are_text_of_an_address() -> None:
    """Links around raw blocks are found where they are, and those with raw blocks are not tracked inside of them."""
    html = '<a href="https://a.test/{% raw %}{{{% endraw %}">a</a>'
    html += '{% raw %}}} <a href="https://b.test/{{x}}">b</a>{% endraw %}'
    assert [link.href for link in links.find_links(html)] == [
        "https://a.test/{% raw %}{{{% endraw %}", "https://b.test/{{x}}",
    ]  # fmt: skip
    tracked, _ = links.rewrite_links(html, "", [link.href for link in links.find_links(html)], "https://t.test")
    assert '<a href="https://t.test/c/{{ track.click }}-1">a</a>' in tracked and "https://b.test/{{x}}" in tracked
