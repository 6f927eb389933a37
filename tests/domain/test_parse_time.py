"""Parsing time of templates and bodies: it grows linearly with their length."""

import time
import tracemalloc
from collections.abc import Callable

import pytest

from appliance.content.designs import merge, merge_limits, sanitizer
from appliance.content.designs.merge_limits import MergeError
from appliance.sending.messages import compose
from appliance.sending.messages.compose import MessageSource
from tests.kit.sampling import every_nth

# For four times the length: twice the linear factor of 4; quadratic growth would take sixteen times as long
MAX_RATIO = 8
# Shorter times are too imprecise to compare
MIN_SECONDS = 0.01

TAGS: dict[str, Callable[[int], str]] = {
    "conditions": lambda n: "{% if " + "a and " * n + "a %}x{% endif %}",
    "comparisons": lambda n: "{% if " + "a == " * n + "a %}x{% endif %}",
    "values of a case": lambda n: "{% case a %}{% when " + "1, " * n + "1 %}x{% endcase %}",
    "filters": lambda n: "{{ a" + " | upcase" * n + " }}",
    "arguments": lambda n: "{{ a | default: " + "1, " * n + "1 }}",
    "parentheses": lambda n: "{% if " + "(" * n + "a" + ")" * n + " %}x{% endif %}",
    "parentheses in an output": lambda n: "{{ a | default: " + "(" * n + "1 }}",
    "ranges": lambda n: "{{ a | default: " + "(1..2), " * n + "1 }}",
    "indexes": lambda n: "{{ a" + "[0]" * n + " }}",
    "brackets that do not end": lambda n: "{{ a" + '["' * n + " }}",
    "brackets without a dot": lambda n: "{{ a" + '["b" ' * n + " }}",
    "names": lambda n: "{{ a" + ".a" * n + " }}",
    "digits": lambda n: "{{ a[" + "1" * n + " }}",
    "quotes": lambda n: "{{ " + '"a" ' * n + " }}",
    "blocks": lambda n: "{% if a %}" * n + "{% endif %}" * n,
    "branches": lambda n: "{% if a %}x" + "{% elsif a == 1 %}" * n + "{% endif %}",
    "comments in comments": lambda n: "{% comment %}" * n + "{% endcomment %}" * n,
    "raw blocks that do not end": lambda n: "{% raw %}x" * min(n, 1_900) + "x" * n,
    "raw tags in a raw block": lambda n: "{% raw %}" * min(n, 1_900) + "x" * n + "{% endraw %}",
    "doc blocks that do not end": lambda n: "{%- doc %}x" * min(n, 1_900) + "x" * n,
    "outputs": lambda n: "{{ contact.data.a }} " * n,
    "tags that do not end": lambda n: "{{ " * n,
}
BODIES: dict[str, Callable[[int], str]] = {
    "links": lambda n: "".join(f'<a href="https://x.test/{number}">w</a>' for number in range(n)),
    "links that do not end": lambda n: '<a href="https://x.test/">w' * n,
    "addresses that do not end": lambda n: '<a href="' * n,
    "addresses in a text": lambda n: " https://x.test/a).," * n,
    "elements in elements": lambda n: "<div>" * n,
    "tables": lambda n: "<table><tr><td>x" * n,
    "comments that do not end": lambda n: "<!--[if mso]>" * n,
    "styles": lambda n: "<style>" + ".a{color:red}" * n + "</style>",
    "addresses in a style": lambda n: '<p style="' + "a:url(" * n + '">x</p>',
    "attributes": lambda n: "<p " + "a=b " * n + ">x</p>",
    "entities": lambda n: "<p>" + "&amp" * n + "</p>",
    "empty lines": lambda n: "x" + "\n \t" * n + "y",
    "angles": lambda n: "<" * n,
}  # fmt: skip


def measure_seconds(function: Callable[[], object]) -> float:
    """Return the processor time of a call, the lesser of two runs; a MergeError is allowed."""
    times = []
    for _ in range(2):
        merge.parse_template.cache_clear()
        compose.try_compile.cache_clear()
        started = time.thread_time()
        try:
            function()
        except MergeError as error:
            assert error.message
        times.append(time.thread_time() - started)
    return min(times)


@pytest.mark.parametrize("name", every_nth(TAGS, 3))
def test_tags_are_parsed_in_linear_time(name: str) -> None:
    """Up to 100,000 conditions, filters, brackets or blocks are parsed or rejected in linear time."""
    for count in (1_000, 25_000):
        short, long = (
            measure_seconds(lambda text=TAGS[name](size): merge.compile_template(text, "html"))
            for size in (count, 4 * count)
        )
        assert long < MAX_RATIO * max(short, MIN_SECONDS)


@pytest.mark.parametrize("name", every_nth(BODIES, 3))
def test_bodies_are_compiled_in_linear_time(name: str) -> None:
    """Up to 20,000 links or other elements are compiled to HTML, text and numbered links in linear time."""
    short, long = (
        measure_seconds(
            lambda body=BODIES[name](size): compose.compile_message(MessageSource("x", body, marketing=True))
        )
        for size in (5_000, 20_000)
    )
    assert long < MAX_RATIO * max(short, MIN_SECONDS)


def test_an_ordinary_style_sheet_is_inlined() -> None:
    """Rules for a thousand elements are inlined, also 900 rules for the same elements."""
    many_rules = "".join(f"b{{color:#{number:06x};margin:{number}px}}" for number in range(900))
    assert len(sanitizer.clean_document(f"<style>{many_rules}</style>" + "<b>x</b>" * 1_000)) < 200_000
    ordinary_rules = "".join(
        f".c{number}{{color:#{number:06x};margin:{number}px;padding:1px 2px}}" for number in range(200)
    )
    body = "".join(f'<p class="c{number % 200}">x</p>' for number in range(1_000))
    assert sanitizer.clean_document(f"<style>{ordinary_rules}</style>{body}").count("style=") == 1_000


def test_unquoted_text_in_tags_is_limited() -> None:
    """Parsed values take a multiple of their length in memory.

    More than 32,768 characters outside quotes are rejected.
    """
    values = "{{ a | default: " + ",".join("1" * 600) + " }}"
    assert merge.compile_template(values * 25, "text")
    with pytest.raises(MergeError, match=r"maximum is 32768 characters outside of quotes"):
        merge.compile_template(values * 30, "text")
    assert merge.compile_template("{{ a | default: '" + "," * 100_000 + "' }}", "text")


def test_a_rejected_template_is_not_parsed_again() -> None:
    """The error of a template is cached, for validation and for compiling."""
    body = "{{ a }}" * 1_000 + "{% if %}"
    merge.parse_template.cache_clear()
    compose.try_compile.cache_clear()
    for _ in range(3):
        assert merge.find_error(body, "html") == "missing expression (line 1, column 7004)"
        with pytest.raises(MergeError):
            compose.compile_message(MessageSource("x", body))
    assert compose.try_compile.cache_info().misses == 1
    # The body by itself, and as part of the complete document
    assert merge.parse_template.cache_info().misses <= 3


LARGE: dict[str, str] = {
    "outputs": "{{ a }}" * 2_000,
    "filters": ("{{ a" + " | upcase" * 20 + " }}") * 170,
    "a long name": ("{{ a" + ".a" * 500 + " }}") * 30,
    "text": "word " * 200_000,
    "nothing": "",
}


@pytest.mark.parametrize("name", every_nth(LARGE, 3))
def test_template_sizes_are_not_underestimated(name: str) -> None:
    """The size that the cache counts is at least the memory that the template takes."""
    merge.compile_template("{{ a }}", "html")
    merge.parse_template.cache_clear()
    tracemalloc.start()
    try:
        compiled = merge.compile_template(LARGE[name], "html")
        assert compiled.size >= tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_the_template_cache_has_a_size_limit() -> None:
    """Twenty large templates leave at most `MAX_CACHED_BYTES` in the cache; the latest is still cached."""
    merge.parse_template.cache_clear()
    for number in range(20):
        merge.compile_template("{{ a }}" * 1_999 + f"{{{{ b{number} }}}}", "html")
    cache_info = merge.parse_template.cache_info()
    assert 10 < cache_info.currsize // 4_000_000 <= merge_limits.MAX_CACHED_BYTES // 4_000_000
    assert len(merge.parse_template.cache) < 20
    merge.compile_template("{{ a }}" * 1_999 + "{{ b19 }}", "html")
    assert merge.parse_template.cache_info().hits == cache_info.hits + 1


@pytest.mark.parametrize("tag", ["raw", "doc"])
def test_unclosed_raw_blocks_are_rejected_quickly(tag: str) -> None:
    """Unclosed blocks are rejected before parsing: the library searches to the template's end for each of them."""
    source = f"{{% {tag} %}}x" * 1_900 + "x" * 200_000
    assert measure_seconds(lambda: merge.compile_template(source, "html")) < 0.5


def test_a_raw_block_keeps_its_content() -> None:
    """Tags inside a raw block are text, another `{% raw %}` too; tags after it are parsed again."""
    template = merge.compile_template("{%- raw -%} {{ a }}{% raw %}{% if %} {%- endraw -%}{{ first_name }}", "text")
    assert template.render({"first_name": "Zoë"}) == " {{ a }}{% raw %}{% if %} Zoë"
