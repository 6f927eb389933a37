"""What reading a template costs: four times the text takes about four times the time, or it is refused at once."""

import time
import tracemalloc
from collections.abc import Callable

import pytest

from appliance.content.designs import merge, merge_limits, sanitizer
from appliance.content.designs.merge_limits import MergeError
from appliance.sending.messages import compose
from appliance.sending.messages.compose import MessageSource

# Twice what grows with the length; what grows with its square takes sixteen times as long
MAX_RATIO = 8
# What takes less than this says nothing of how it grows
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


def seconds(read: Callable[[], object]) -> float:
    """Return the processor time of reading something, refused or not: the lesser of two."""
    times = []
    for _ in range(2):
        merge.parse_template.cache_clear()
        compose.try_compile.cache_clear()
        began = time.thread_time()
        try:
            read()
        except MergeError as error:
            assert error.message
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("name", TAGS)
def test_tags_are_read_in_time_that_grows_with_their_length(name: str) -> None:
    """Up to 100,000 conditions, filters, brackets or blocks are read or refused in linear time."""
    for count in (1_000, 25_000):
        short, long = (
            seconds(lambda text=TAGS[name](size): merge.compile_template(text, "html")) for size in (count, 4 * count)
        )
        assert long < MAX_RATIO * max(short, MIN_SECONDS)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_read_in_time_that_grows_with_its_length(name: str) -> None:
    """Up to 20,000 links and other elements become a message in linear time: its HTML, its text, its numbered links."""
    short, long = (
        seconds(lambda body=BODIES[name](size): compose.compile_message(MessageSource("x", body, marketing=True)))
        for size in (5_000, 20_000)
    )
    assert long < MAX_RATIO * max(short, MIN_SECONDS)


def test_rules_that_would_make_a_mail_too_long_stay_in_its_head() -> None:
    """A rule of 17 KB for each of 5,000 elements would be written 5,000 times; an ordinary sheet is written."""
    rule = "".join(f"--a{number}:1;" for number in range(1_500))
    long = seconds(lambda: sanitizer.clean_document(f"<style>b{{{rule}}}</style>" + "<b>x</b>" * 5_000))
    made = sanitizer.clean_document(f"<style>b{{{rule}}}</style>" + "<b>x</b>" * 5_000)
    assert long < 1 and len(made) < 200_000 and "<style>" in made
    many = "".join(f"b{{color:#{number:06x};margin:{number}px}}" for number in range(900))
    assert len(sanitizer.clean_document(f"<style>{many}</style>" + "<b>x</b>" * 1_000)) < 200_000
    usual = "".join(f".c{number}{{color:#{number:06x};margin:{number}px;padding:1px 2px}}" for number in range(200))
    body = "".join(f'<p class="c{number % 200}">x</p>' for number in range(1_000))
    assert sanitizer.clean_document(f"<style>{usual}</style>{body}").count("style=") == 1_000


def test_what_stands_in_tags_outside_of_quotes_is_bounded() -> None:
    """Values in tags take many times their length of memory once they are read: a template with too many is refused."""
    values = "{{ a | default: " + ",".join("1" * 600) + " }}"
    assert merge.compile_template(values * 25, "text")
    with pytest.raises(MergeError, match=r"maximum is 32768 characters outside of quotes"):
        merge.compile_template(values * 30, "text")
    assert merge.compile_template("{{ a | default: '" + "," * 100_000 + "' }}", "text")


def test_a_template_that_was_refused_is_not_parsed_again() -> None:
    """Who writes looks at a request before the writer thread has to: what was refused then is known there too."""
    body = "{{ a }}" * 1_000 + "{% if %}"
    merge.parse_template.cache_clear()
    compose.try_compile.cache_clear()
    for _ in range(3):
        assert merge.find_error(body, "html") == "missing expression (line 1, column 7004)"
        with pytest.raises(MergeError):
            compose.compile_message(MessageSource("x", body))
    assert compose.try_compile.cache_info().misses == 1
    # The body by itself, and as the document that leaves
    assert merge.parse_template.cache_info().misses <= 3


LARGE: dict[str, str] = {
    "outputs": "{{ a }}" * 2_000,
    "filters": ("{{ a" + " | upcase" * 20 + " }}") * 170,
    "a long name": ("{{ a" + ".a" * 500 + " }}") * 30,
    "text": "word " * 200_000,
    "nothing": "",
}


@pytest.mark.parametrize("name", LARGE)
def test_the_size_of_a_template_is_not_underestimated(name: str) -> None:
    """The caches count at least the bytes that a template really takes."""
    merge.compile_template("{{ a }}", "html")
    merge.parse_template.cache_clear()
    tracemalloc.start()
    try:
        compiled = merge.compile_template(LARGE[name], "html")
        assert compiled.size >= tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_templates_are_cached_up_to_a_number_of_bytes() -> None:
    """Forty large templates leave no more behind than the limit, and the latest is not read again."""
    merge.parse_template.cache_clear()
    for number in range(40):
        merge.compile_template("{{ a }}" * 1_999 + f"{{{{ b{number} }}}}", "html")
    kept = merge.parse_template.cache_info()
    assert 10 < kept.currsize // 4_000_000 <= merge_limits.MAX_CACHED_BYTES // 4_000_000
    merge.compile_template("{{ a }}" * 1_999 + "{{ b39 }}", "html")
    assert merge.parse_template.cache_info().hits == kept.hits + 1


@pytest.mark.parametrize("tag", ["raw", "doc"])
def test_verbatim_blocks_that_do_not_end_are_refused_before_they_are_parsed(tag: str) -> None:
    """The library searches to the end of the template for each of them: 1,900 before 200 KB took seven seconds."""
    source = f"{{% {tag} %}}x" * 1_900 + "x" * 200_000
    assert seconds(lambda: merge.compile_template(source, "html")) < 0.5


def test_a_raw_block_keeps_what_is_inside() -> None:
    """Tags inside are text, a second opening too, and what follows is read again."""
    template = merge.compile_template("{%- raw -%} {{ a }}{% raw %}{% if %} {%- endraw -%}{{ first_name }}", "text")
    assert template.render({"first_name": "Zoë"}) == " {{ a }}{% raw %}{% if %} Zoë"
