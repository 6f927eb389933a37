"""Run axe-core in a page to find automatically detectable violations of WCAG 2.2 AA."""

from functools import cache
from pathlib import Path

from playwright.sync_api import Page

# Whether contrast in dark mode and the size of targets are checked wherever violations are looked for: with `--full`
check_all_everywhere = False

_SCRIPT = Path(__file__).parents[1] / "vendor" / "axe.min.js"
_LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# The links of the navigation, which all pages share. Its landmarks are checked, because axe compares them with those of
# the page.
_NAVIGATION = [".side > :not(nav)", ".side > nav > *", ".tabbar > *"]
# What is like the elements before it: left out without `--full`
_REPEATED = ["tbody > tr:nth-child(n+4)", "option:nth-child(n+4)", "optgroup:nth-child(n+3)", ".tile:nth-child(n+5)"]
# Frames contain emails, which have their own tests; axe would get no response from a sandboxed frame. Style sheets are
# not loaded again, because only a rule for sound and video would read them. Contrast takes as long as all other rules:
# it is measured once for each combination of colours, size and weight, and for all elements with `--full` and in pages
# with shadow trees, which no selector looks into. `known` are the combinations that were measured before.
_RUN = """async ([only, exclude, known, all, sizes]) => {
  const options = { iframes: false, preload: false, resultTypes: ['violations'] };
  const run = async (include, runOnly, rules = {}) =>
    (await axe.run({ include, exclude }, { ...options, runOnly, rules })).violations;
  const grounds = new Map();
  const ground = (element) => {
    if (!element) return '';
    if (!grounds.has(element)) {
      const { opacity, backgroundImage, backgroundColor } = getComputedStyle(element);
      const own = [opacity, backgroundImage, backgroundColor].filter(
        value => !['1', 'none', 'rgba(0, 0, 0, 0)'].includes(value));
      grounds.set(element, [...own, ground(element.parentElement)].join(' '));
    }
    return grounds.get(element);
  };
  const combination = (element) => {
    const { color, fontSize, fontWeight, textShadow } = getComputedStyle(element);
    const isDisabled = element.closest(':disabled, [aria-disabled=true]') !== null;
    return [color, fontSize, fontWeight, textShadow, isDisabled, ground(element)].join(' ');
  };
  const elements = [...document.querySelectorAll('body *')];
  const isWhole = all || elements.some(element => element.shadowRoot);
  const left = exclude.flat().join();
  const fresh = new Map();
  if (!isWhole && (!only || only === 'color-contrast'))
    for (const element of elements) {
      const isText = element.matches('input, select, textarea')
        || [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
      if (!isText || (left && element.closest(left)) || !element.checkVisibility()) continue;
      const key = combination(element);
      if (!known.includes(key) && !fresh.has(key)) fresh.set(key, element);
    }
  const found = [];
  if (!only)
    found.push(...await run(['html'], { type: 'tag', values: LEVELS },
      { 'color-contrast': { enabled: isWhole }, 'target-size': { enabled: sizes } }));
  else if (isWhole || only !== 'color-contrast')
    found.push(...await run(['html'], { type: 'rule', values: [only] }));
  if (fresh.size) found.push(...await run([...fresh.values()], { type: 'rule', values: ['color-contrast'] }));
  const why = (node) => node.failureSummary.split('\\n').slice(1).join(' ');
  const violations = found.flatMap(rule => rule.nodes.map(n => `${rule.id}: ${n.target.join(' ')} ${why(n)}`));
  return [violations, [...fresh.keys()]];
}"""
# The combinations of colours, size and weight that had enough contrast in this process
_sufficient_contrasts: set[str] = set()


@cache
def _source() -> str:
    return _SCRIPT.read_text(encoding="utf-8")


def find_violations(
    page: Page, rule: str | None = None, *, with_sizes: bool = False, with_navigation: bool = False
) -> list[str]:
    """Return each violation of WCAG 2.2 AA (or of one axe rule) in the page: rule, element, reason.

    The sizes of targets are half of the work on most pages, and the links of the navigation a third: only the test of
    all pages checks them, and `--full` checks the sizes everywhere.
    """
    page.wait_for_load_state()  # without its style sheets, every target is too small
    if not page.evaluate("typeof axe === 'object'"):
        # Without `page.evaluate`, which wraps half a megabyte into an argument and compiles it again for each page
        session = page.context.new_cdp_session(page)
        session.send("Runtime.evaluate", {"expression": f"{_source()}; 0"})
        session.detach()
    left_out = [*([] if with_navigation else _NAVIGATION), *([] if check_all_everywhere else _REPEATED)]
    arguments = [rule, [[each] for each in left_out], sorted(_sufficient_contrasts), check_all_everywhere]
    arguments.append(with_sizes or check_all_everywhere)
    violations, measured = page.evaluate(_RUN.replace("LEVELS", str(_LEVELS)), arguments)
    if not any(violation.startswith("color-contrast:") for violation in violations):
        _sufficient_contrasts.update(measured)
    return [str(violation) for violation in violations]


def find_violations_in_light_and_dark(
    page: Page, *, is_complete: bool = False, with_navigation: bool = False
) -> list[str]:
    """Return the violations of a page in light mode, and those of contrast in dark mode; light mode is restored.

    Contrast in dark mode and the sizes of targets are checked with `--full`, or if `is_complete`: without `--full` only
    the test of all pages does it.
    """
    # Without reduced motion, a colour could be measured in the middle of its transition.
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    violations = find_violations(page, with_sizes=is_complete, with_navigation=with_navigation)
    if not (is_complete or check_all_everywhere):
        return violations
    page.emulate_media(color_scheme="dark")
    in_dark = find_violations(page, "color-contrast", with_navigation=with_navigation)
    violations += [f"dark: {violation}" for violation in in_dark]
    page.emulate_media(color_scheme="light")
    return violations
