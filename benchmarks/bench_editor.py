"""Measures the editor from an act to the changed pixel: `python -m benchmarks.bench_editor [--times 30]`.

Run by hand. The act is stamped by its own event in the page, the pixel by the frame that follows the first change of
the canvas; both clocks are told apart by `performance.timeOrigin`. What the server took of it stands beside it.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

from tests.kit.browser import Problems, new_page, running_browser, sign_in
from tests.kit.editor import create_template, wait_until_saved
from tests.kit.server import Server
from tests.kit.timeouts import report_stolen_cpu_at_exit

GOAL_MS = 120
_WORDS = "<p>We have been busy, and there is news. Here is what is worth knowing about it, in few words.</p>"
_ACTED = """() => {
  for (const name of ["keydown", "click"])
    addEventListener(name, (event) => { window.acted = performance.timeOrigin + event.timeStamp; }, true);
}"""
_SEEN = """() => {
  window.seen = [];
  new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
    window.seen.push(performance.timeOrigin + performance.now());
  }))).observe(document.body, { childList: true, characterData: true, subtree: true });
}"""
_ASKED = """() => performance.getEntriesByType("resource").map((one) =>
  [one.name.includes("/rows") ? "rows" : "save", one.initiatorType, one.responseEnd - one.startTime])"""


def letter(sections: int) -> dict[str, Any]:
    """Return a design with so many sections, alternating headings, texts and buttons."""
    outline = [{"id": "press", "type": "button", "props": {"text": "Read", "href": "https://example.org"}},
             {"id": "title", "type": "heading", "props": {"text": "News"}}]  # fmt: skip
    for at in range(sections - 3):
        kind = ("heading", "text", "button")[at % 3]
        props = {"heading": {"text": f"Part {at}"}, "text": {"content": _WORDS},
                 "button": {"text": f"Go {at}", "href": f"https://example.org/{at}"}}[kind]  # fmt: skip
        outline.append({"id": f"s{at}", "type": kind, "props": props})
    return {"sections": [*outline, {"id": "foot", "type": "footer", "props": {}}]}


class Bench:
    """An open editor, and how long its canvas takes to update."""

    def __init__(self, page: Page, times: int) -> None:
        self.page, self.times = page, times
        self.frame = next(frame for frame in page.frames if "/canvas" in frame.url)
        page.evaluate(_ACTED)
        self.frame.evaluate(_SEEN)

    def follow(self, name: str, act: Callable[[int], None]) -> None:
        """Repeat an action; return how long the first and the last change of the canvas took."""
        first, last, took = [], [], {"save": [], "rows": []}
        for at in range(self.times + 3):
            self.frame.evaluate("() => { window.seen = []; }")
            self.page.evaluate("() => performance.clearResourceTimings()")
            act(at)
            self.frame.wait_for_function("() => window.seen.length")
            wait_until_saved(self.page)
            self._still()
            acted_at, seen = self.page.evaluate("() => window.acted"), self.frame.evaluate("() => window.seen")
            if at < 3:  # what is slow once only
                continue
            first.append(seen[0] - acted_at)
            last.append(seen[-1] - acted_at)
            for kind, initiator, ms in self.page.evaluate(_ASKED):
                if initiator == "fetch":
                    took[kind].append(ms)
        server = ", ".join(f"{kind} {statistics.median(all):.0f}" for kind, all in took.items() if all)
        print(f"  {name:24} first pixel {told(first)}, last {told(last)}; requests (median ms): {server}", flush=True)

    def _still(self) -> None:
        before = -1
        while before != (now := int(self.frame.evaluate("() => window.seen.length"))):
            before = now
            time.sleep(0.35)


def told(times: list[float]) -> str:
    """Return the median and the 95th percentile as text."""
    times = sorted(times)
    late = times[min(len(times) - 1, int(len(times) * 0.95))]
    return f"{statistics.median(times):4.0f} / {late:4.0f} ms"


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--sections", type=int, default=12)
    options = parser.parse_args()
    with Server().set_up() as server, running_browser() as browser:
        template_id = create_template(server.client(), design=letter(options.sections))
        page = sign_in(new_page(browser, server.url, Problems(), width=1360))
        page.goto(f"/templates/{template_id}/edit?s=press")
        page.wait_for_load_state("networkidle")
        print(f"{options.sections} sections, median / p95, goal {GOAL_MS} ms; load {os.getloadavg()[0]:.1f}")
        bench = Bench(page, options.times)
        styles = page.locator("#inspector input[name='props.style']")
        bench.follow("button style", lambda at: styles.nth((at + 1) % 2).check(force=True))
        bench.follow("move", lambda at: page.locator("#act-up" if at % 2 else "#act-down").click())
        page.locator("#o-title").click()
        wait_until_saved(page)
        typed = page.locator("#inspector").get_by_label("Text", exact=True)
        typed.click()
        bench.follow("typed letter (+ 300 ms)", lambda at: page.keyboard.press("abcdefghij"[at % 10]))
        page.locator("#o-title").click()
        bench.follow("duplicate", lambda _: page.locator("#act-duplicate").click())
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
