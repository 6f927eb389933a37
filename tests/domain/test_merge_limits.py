"""Template bombs (T02): a letter that would eat the machine is refused in less than a second."""

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
def bounded() -> Iterator[None]:
    """Let this process grow by 1 GiB at most, so that a bomb that goes off fails its test and not the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:  # noqa: PTH123 - a file of the kernel
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 1024 * MIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_once(name: str) -> None:
    """A template that would run or grow without end is a MergeError within a second."""
    values = {"a": True, "n": list(range(100)), "long": "x" * 100_000}
    began = time.thread_time()
    with pytest.raises(MergeError):
        merge.compile_template(BOMBS[name], "html").render(values)
    assert time.thread_time() - began < 3


@pytest.mark.parametrize(
    "source",
    [
        f'<a href="https://x.test/{("a" * 500 + "{{ a }}") * 1_900}">x</a>',
        f'<a href="https://x.test/{"{{ a }}" * 1_900}">x</a>',
        f'<a href="{"{% if a %}{{ a }}{% endif %}" * 660}">x</a>',
        f'<p style="{("a:url(https://x.test/{{ a }});" + "b" * 1_000) * 900}">x</p>',
    ],
)
def test_the_places_of_many_tags_are_found_at_once(source: str) -> None:
    """A megabyte of tags in one attribute is a template or a MergeError in time that grows with its length alone."""
    began = time.thread_time()
    assert merge.find_error(source, "html") in (None, "an address is too long (maximum is 2000 characters)"
                                           " (line 1, column 10)")  # fmt: skip
    assert time.thread_time() - began < 4  # where it grows with the square it is minutes


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
def test_huge_arguments_cost_nothing(source: str) -> None:
    """A huge number given to a filter, or as a value, ends in an answer or a MergeError within a second."""
    began = time.thread_time()
    try:
        found = merge.compile_template(source, "text").render({"a": "9" * 100_000})
    except MergeError:
        found = ""
    assert len(found) < MIB and time.thread_time() - began < 3


def test_a_part_holds_up_to_a_mebibyte() -> None:
    """Output of just 1 MiB passes, one byte more does not."""
    assert len(merge.compile_template("{{ a }}", "text").render({"a": "x" * MIB})) == MIB
    with pytest.raises(MergeError, match="limit"):
        merge.compile_template("{{ a }}y", "text").render({"a": "x" * MIB})


def test_eight_blocks_deep_are_allowed() -> None:
    """Eight blocks inside each other pass; the ninth is refused with its place."""
    source = "{% if a %}" * 8 + "x" + "{% endif %}" * 8
    assert merge.compile_template(source, "text").render({"a": True}) == "x"
    with pytest.raises(MergeError) as caught:
        merge.compile_template("{% if a %}" * 9 + "x" + "{% endif %}" * 9, "text")
    assert (caught.value.line, caught.value.column) == (1, 8 * 10 + 1 + 3 + 7)


def test_a_hundred_rounds_are_allowed() -> None:
    """A list of a hundred is written out in full."""
    assert merge.compile_template("{% for i in a %}x{% endfor %}", "text").render({"a": list(range(100))}) == "x" * 100
