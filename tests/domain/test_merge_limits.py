"""Template bombs (T02): templates that would take too much memory or time are rejected quickly."""

import resource
import time
from collections.abc import Iterator

import pytest

from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError

MIB = 1024 * 1024

BOMBS = {
    "a loop over a range": "{% for i in (1..1000000000) %}x{% endfor %}",
    "loops in loops": "{% for a in n %}{% for b in n %}{% for c in n %}x{% endfor %}{% endfor %}{% endfor %}",
    "loops of ranges": "{% for a in (1..99) %}{% for b in (1..99) %}{% for c in (1..99) %}x" + "{% endfor %}" * 3,
    "a template of 5 MiB": "x" * 5 * MIB,
    "a value said often": "{% for i in n %}{{ long }}{% endfor %}",
    "blocks too deep": "{% if a %}" * 9 + "x" + "{% endif %}" * 9,
    "blocks far too deep": "{% if a %}" * 5000 + "x" + "{% endif %}" * 5000,
    "never closed": "{% if a %}" * 20_000,
    "indexes of indexes": "{{ a" + "[a" * 2000 + "]" * 2000 + " }}",
    "a thousand conditions": "{% if " + "a and " * 20_000 + "a %}x{% endif %}",
    "Python's multiplication": "{{ 'a' * 1000000000 }}",
    "Python's format": "{{ '%0500000000d' % 1 }}",
    "a number of a million digits": "{{ " + "9" * 1_000_000 + " | round }}",
}


@pytest.fixture(autouse=True)
def memory_limit() -> Iterator[None]:
    """Limit the growth of this process to 1 GiB, so that a template bomb fails its test and not the machine."""
    limits_before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:  # noqa: PTH123 - a file of the kernel
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 1024 * MIB, limits_before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits_before)


@pytest.mark.parametrize("name", BOMBS)
def test_template_bombs_are_rejected(name: str) -> None:
    """A template that would run or grow without end raises MergeError within three seconds."""
    values = {"a": True, "n": list(range(100)), "long": "x" * 100_000}
    started = time.thread_time()
    with pytest.raises(MergeError):
        merge.compile_template(BOMBS[name], "html").render(values)
    assert time.thread_time() - started < 3


@pytest.mark.parametrize(
    "source",
    [
        f'<a href="https://x.test/{("a" * 500 + "{{ a }}") * 1_900}">x</a>',
        f'<a href="https://x.test/{"{{ a }}" * 1_900}">x</a>',
        f'<a href="{"{% if a %}{{ a }}{% endif %}" * 660}">x</a>',
        f'<p style="{("a:url(https://x.test/{{ a }});" + "b" * 1_000) * 900}">x</p>',
    ],
)
def test_many_tags_in_an_attribute_are_checked_in_linear_time(source: str) -> None:
    """A megabyte of tags in one attribute is accepted or rejected within four seconds."""
    started = time.thread_time()
    assert merge.find_error(source, "html") in (None, "an address is too long (maximum is 2000 characters)"
                                           " (line 1, column 10)")  # fmt: skip
    assert time.thread_time() - started < 4  # quadratic growth would take minutes


@pytest.mark.parametrize(
    "source",
    [
        "{{ '2026-01-01' | date: '%0500000000d' }}",
        "{{ 'a' | truncate: 1000000000 }}",
        "{{ 1.5 | round: 100000000 }}",
        "{{ (1..10000000000) | last }}",
        "{{ a | round }}",
    ],
)
def test_huge_numbers_in_filters_are_cheap(source: str) -> None:
    """A huge number as an argument or value of a filter gives a short output or a MergeError within three seconds."""
    started = time.thread_time()
    try:
        output = merge.compile_template(source, "text").render({"a": "9" * 100_000})
    except MergeError:
        output = ""
    assert len(output) < MIB and time.thread_time() - started < 3


def test_output_is_limited_to_one_mebibyte() -> None:
    """Output of 1 MiB passes; one byte more is rejected."""
    assert len(merge.compile_template("{{ a }}", "text").render({"a": "x" * MIB})) == MIB
    with pytest.raises(MergeError, match="limit"):
        merge.compile_template("{{ a }}y", "text").render({"a": "x" * MIB})


def test_blocks_nest_eight_levels_deep() -> None:
    """Eight nested blocks pass; the ninth is rejected with its line and column."""
    source = "{% if a %}" * 8 + "x" + "{% endif %}" * 8
    assert merge.compile_template(source, "text").render({"a": True}) == "x"
    with pytest.raises(MergeError) as caught:
        merge.compile_template("{% if a %}" * 9 + "x" + "{% endif %}" * 9, "text")
    assert (caught.value.line, caught.value.column) == (1, 8 * 10 + 1 + 3 + 7)


def test_a_loop_over_a_hundred_items_is_allowed() -> None:
    """All hundred items are rendered."""
    assert merge.compile_template("{% for i in a %}x{% endfor %}", "text").render({"a": list(range(100))}) == "x" * 100
