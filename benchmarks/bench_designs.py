"""Measure a design: rendering, and filling for each recipient. Run by hand: `python -m benchmarks.bench_designs`."""

import json
import statistics
import time
from typing import Any

from appliance.content.designs.render import render_design
from appliance.content.designs.theme import Look
from appliance.sending.messages import compose
from appliance.sending.messages.compose import CompiledMessage, MessageSource

LOOK = Look(company_name="Acme Ltd", physical_address="1 Main St, Town", brand_color="#aa3322")
WORDS = "Here is what is new this month in our little shop by the sea, and what our friends say about it. "
VALUES: dict[str, Any] = {
    "first_name": "Ann", "last_name": "Lee", "email": "ann@example.org", "show": {},
    "contact": {"id": 5, "first_name": "Ann", "last_name": "Lee", "email": "ann@example.org", "data": {"city": "Bath"}},
    "brand": {"company_name": "Acme Ltd", "physical_address": "1 Main St, Town"}, "campaign": {"name": "Spring"},
    "unsubscribe_url": "https://news.example.org/u/AAAAAAAAAAAA", "view_url": "https://news.example.org/v/AAAAAAAAAAAA",
    "preferences_url": "https://news.example.org/u/AAAAAAAAAAAA",
}  # fmt: skip


def source(number: int, loop: bool = False) -> MessageSource:
    """Return an email with twelve sections, different for each number."""
    text = (
        f'<p>Dear {{{{ contact.first_name | default: "friend" }}}} in {{{{ contact.data.city }}}}, {number}: '
        f'{WORDS * 12} <a href="https://x.test/?c={{{{ contact.id }}}}">Read more</a></p>'
    )
    more = "{% for one in data.list %}{{ one }}{% endfor %}" if loop else ""
    product = {"name": "Bread", "price": "3.00", "image_url": "https://x.test/b.png", "href": "https://x.test/b"}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("header", {"wordmark_text": "Acme", "links": [{"text": "Shop", "href": "https://x.test"}]}),
        ("hero", {"title": "Hello {{ first_name }}", "subtitle": WORDS, "cta_text": "Go", "cta_url": "https://x.test/h"}),
        ("text", {"content": text + more}), ("image", {"src": "https://x.test/i.png", "alt": "Sea"}),
        ("heading", {"text": "New for {{ first_name }}"}), ("product_grid", {"items": [product] * 4}),
        ("text", {"content": text}), ("button", {"text": "Go", "href": "https://x.test/?e={{ email }}"}),
        ("list", {"items": [{"title": "One", "text": WORDS}] * 3}), ("divider", {}), ("text", {"content": text}),
        ("footer", {}),
    ]  # fmt: skip
    fields = {
        "subject": "Hi {{ first_name }}", "preheader": "For {{ first_name }}", "from_name": None, "body": None,
        "design": {"sections": [{"type": kind, "props": props} for kind, props in kinds]},
    }  # fmt: skip
    return compose.build_source(fields, LOOK, "en", marketing=True)


def each(content: CompiledMessage, times: int) -> float:
    """Return the microseconds per recipient."""
    start = time.perf_counter()
    for _ in range(times):
        compose.fill(content, VALUES)
    return (time.perf_counter() - start) / times * 1e6


def main() -> None:
    """Run the measurements."""
    compose.compile_message(source(-1))
    compile_times = []
    for number in range(40):
        start = time.perf_counter()
        content = compose.compile_message(source(number))
        compile_times.append((time.perf_counter() - start) * 1e3)
    render_times = []
    for number in range(100, 140):
        design = json.loads(source(number).design or "{}")
        start = time.thread_time()
        render_design(design, LOOK)
        render_times.append((time.thread_time() - start) * 1e3)
    size = len(content.html.source.encode()) / 1024
    print(f"12 sections, {size:.0f} KB of HTML, {len(content.links)} links")
    print(f"rendered in {statistics.median(render_times):.1f} ms of processor time (goal 15 ms)")
    print(f"compiled in {statistics.median(compile_times):.1f} ms (most {max(compile_times):.1f} ms)")
    print(f"filled in {each(content, 3000):.0f} µs for each recipient")
    start = time.perf_counter()
    for _ in range(500):
        content.html.render_whole(VALUES)
    print(f"the language itself takes {(time.perf_counter() - start) / 500 * 1e6:.0f} µs for the HTML alone")
    print(f"with a loop in it: {each(compose.compile_message(source(0, loop=True)), 500):.0f} µs for each recipient")
    for number, name in enumerate(("with the start of the child process", "with the running child")):
        pasted = MessageSource("Hi {{ first_name }}", f"{content.html.source}{number}", marketing=True)
        start = time.perf_counter()
        compose.compile_message(pasted)
        print(f"pasted as HTML, {name}: compiled in {(time.perf_counter() - start) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
