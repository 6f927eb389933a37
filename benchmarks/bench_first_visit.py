"""Measures each page's first visit: `python -m benchmarks.bench_first_visit`. Run by hand, in a real browser.

Every page that links lead to is opened with an empty cache, wide and on a phone: how many KB come, frames and pictures
included, and how far what is there moves while the rest arrives (cumulative layout shift: 0 is nothing, 0.1 is what
browsers call good). 150 KB and 0.01 are what we ask of ourselves; pages over that are marked.
"""

from typing import Any

from playwright.sync_api import Page

from tests.kit.browser import Problems, new_page, running_browser, sign_in
from tests.kit.server import Server
from tests.ui.test_pages import crawl, fill

MAX_KB, MAX_SHIFT = 150, 0.01
_SETTLED_MS = 900
_WATCH = """window.moved = 0; new PerformanceObserver(list => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.moved += one.value
}).observe({ type: 'layout-shift', buffered: true })"""


def visits(page: Page) -> dict[str, dict[str, Any]]:
    """Visit every page and return the KB loaded and the layout shift of each."""
    page.context.add_init_script(_WATCH)
    wire = page.context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
    came: list[float] = []
    wire.on("Network.loadingFinished", lambda event: came.append(event["encodedDataLength"]))

    def look(_: Any) -> dict[str, Any]:
        page.wait_for_timeout(_SETTLED_MS)
        figures = {"kb": sum(came) / 1024, "moved": float(page.evaluate("window.moved"))}
        came.clear()
        return figures

    return crawl(page, look)


def main() -> None:
    """Print every page, the largest first, and those over the limit."""
    with Server().set_up() as server, running_browser() as browser:
        server.set_postal_address()
        fill(server.client())
        for width in (1360, 375):
            page = sign_in(new_page(browser, server.url, Problems(), width=width))
            figures_by_kind = visits(page)
            print(f"{len(figures_by_kind)} pages, {width} wide")
            for kind, figures in sorted(figures_by_kind.items(), key=lambda pair: -pair[1]["kb"]):
                over = figures["kb"] > MAX_KB or figures["moved"] > MAX_SHIFT
                print(f"  {'!' if over else ' '} {figures['kb']:6.1f} KB  {figures['moved']:.4f}  {kind}", flush=True)
            page.context.close()


if __name__ == "__main__":
    main()
