"""Generated HTML that a browser could read differently from the sanitizer (mutation XSS), read by Chromium (T03).

Each email is parsed as a document, and as the content of an element, as webmail shows it: written out by the browser
and parsed again, twice. tests/designs/test_literal_braces.py and tests/domain/test_html_process.py have the known
attacks on merge tags and on time and memory.
"""

import random
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from appliance.content.designs import merge, sanitizer
from appliance.content.designs.merge_limits import MergeError
from tests.designs.test_literal_braces import _HOSTILE_PIECES, fill
from tests.kit.hostile_html import PIECES
from tests.kit.sampling import examples

COUNT = examples(150, full=40_000)
BATCH = 100
_MUTATING = (
    "<math>", "</math>", "<mtext>", "<mglyph>", "<malignmark>", "<annotation-xml encoding='text/html'>", "<mi>",
    "<svg>", "</svg>", "<foreignObject>", "<desc>", "<title>", "</title>", "<svg><style>", "<svg><p>",
    "<svg/onload=alert(1)>", "<noscript>", "</noscript>",
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">', "<xmp>", "</xmp>", "<plaintext>", "<listing>",
    "<iframe>", "</iframe>", "<noembed>", "<noframes>", "<textarea>", "</textarea>", "<template>", "</template>",
    "<select>", "<option>", "</select>", "<keygen>", "<form>", "</form>", "<form><math>", "<table>", "<tr>", "<td>",
    "</table>", "<caption>", "<col>", "<colgroup>", "<style>", "</style>", "<style><!--",
    "<a title='</style><img src=x onerror=alert(1)>'>", '<p id="</title><img src=x onerror=alert(1)>">', "<![CDATA[",
    "]]>", "<!-->", "<!--->", "--!>", "<!--", "-->", "<!--<img src='--><img src=x onerror=alert(1)>'>",
    "<?xml version='1.0'?>", "<!DOCTYPE html>", "<!", "</", "</ p>", "</!", "<%", "<\x00script>alert(1)</script>",
    "<img src=x onerror=alert(1)>", "<img/src='x'/onerror=alert(1)>", "<img src=`x` onerror=alert(1)>",
    "<a href='java&#x09;script:alert(1)'>", "<a href='\x01javascript:alert(1)'>",
    "<a href=javascript&colon;alert(1)>", "<a href='data:text/html,<script>alert(1)</script>'>",
    "<a href='//x.test'>", "<a href='vbscript:x'>", "<base href='https://x.test/'>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<link rel=stylesheet href='https://x.test/x.css'>", "<object data='x'>", "<embed src='x'>",
    "<body onload=alert(1)>", "<html onclick=alert(1)>", "<p style='background:url(javascript:alert(1))'>",
    "<p style='width:expression(alert(1))'>", "<p style=\"background:url('https://x.test/a)'//')\">",
    "<style>@import 'https://x.test/x.css';", "<p style='\\75rl(x)'>", "<td background='javascript:alert(1)'>",
    "<p title=\"x\" onclick='alert(1)'>", "<p title='{{ first_name }}'>", "<p {{ first_name }}=x>",
    "<{{ first_name }}>", "<a href='{{ first_name }}:alert(1)'>", "{{ '<img src=x>' }}",
    "<p title={{ first_name }} onclick=alert(1)>", "{% if first_name %}<p title='{% endif %}", "{% if first_name %}",
    "{% endif %}", "{% else %}", "{{", "}}", "{%", "%}", "&lt;img src=x onerror=alert(1)&gt;",
    "&amp;lt;script&amp;gt;", "&#60;script&#62;", "&#x3c;", "&nbsp", "&lt", "\x0c", "\ufeff", "\ud7ff", "\u2028", "x",
    " ", "\n", "'", '"', ">", "=",
)  # fmt: skip
ALL_PIECES = (*_MUTATING, *_MUTATING, *PIECES, *(piece for piece in _HOSTILE_PIECES if len(piece) < 200))
# Parses each email in all ways, and returns what is active in it, by the number of the email.
_FIND_ACTIVE = """emails => {
  const forbidden = new Set(['script','iframe','frame','frameset','object','embed','applet','base','link','form',
    'input','button','select','textarea','template','svg','math','video','audio','noscript','xmp','plaintext','noembed',
    'noframes','portal','dialog','slot','source','track','marquee','keygen','listing'])
  const urls = new Set(['href','src','background','action','formaction','data','poster','cite','srcset','xlink:href'])
  const found = []
  const read = (root, add) => {
    for (const element of root.querySelectorAll('*')) {
      if (element.namespaceURI !== 'http://www.w3.org/1999/xhtml') add(element.localName + ' of another language')
      if (forbidden.has(element.localName)) add('<' + element.localName + '>')
      if (element.localName === 'meta' && /refresh/i.test(element.httpEquiv || '')) add('refresh')
      for (const {name, value} of element.attributes) {
        if (name.startsWith('on') || name === 'srcdoc') add(element.localName + ' ' + name)
        if (urls.has(name)) {
          let scheme = ''
          try { scheme = new URL(value, 'https://page.test/').protocol } catch { scheme = '' }
          if (!['http:', 'https:', 'mailto:', 'tel:', 'sms:', ''].includes(scheme)) add(name + '=' + value)
        }
      }
      const rules = element.localName === 'style' ? element.textContent : element.getAttribute('style') || ''
      const own = rules.replace(/url\\('https?:\\/\\/[^'()\\\\\\s]*'\\)/g, '')
      if (/expression\\s*\\(|behavior\\s*:|@import|url\\s*\\(/i.test(own)) add('style ' + rules.slice(0, 80))
    }
  }
  emails.forEach((html, number) => {
    const add = what => found.push([number, what])
    read(new DOMParser().parseFromString(html, 'text/html'), add)
    const inert = document.implementation.createHTMLDocument('')
    let text = html
    for (let round = 0; round < 3; round++) {
      const place = inert.createElement('div')
      place.innerHTML = text
      read(place, what => add(what + ' in round ' + round))
      text = place.innerHTML
    }
  })
  return found.slice(0, 200)
}"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page without a network."""
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


def generate(rng: random.Random) -> str:
    """Return HTML of a few pieces, at times one of them many times."""
    pieces = [rng.choice(ALL_PIECES) for _ in range(rng.randrange(2, 14))]
    if rng.random() < 0.1:
        place = rng.randrange(len(pieces))
        pieces[place] *= rng.choice((10, 60, 300))
    return "".join(pieces)


def render(rng: random.Random, html: str) -> str:
    """Return the HTML after one of the ways of the service to make an email or a part of one."""
    way = rng.randrange(6)
    if way < 3:
        clean = (sanitizer.clean_document, sanitizer.clean_fragment, sanitizer.clean_text)[way]
        return merge.compile_template(clean(html), "html").render({"first_name": "Ann"})
    if way == 3:
        return fill(html).html
    kinds = {"text": "content", "html": "html", "heading": "text", "button": "text", "quote": "text"}
    parts = [(rng.choice(list(kinds)), html), ("text", generate(rng))]
    return fill("", {"sections": [{"type": kind, "props": {kinds[kind]: text}} for kind, text in parts]}).html


def test_a_browser_finds_nothing_active(page: Page) -> None:
    """Whatever HTML is made of, no parse by a browser has scripts, handlers, frames, forms or foreign elements."""
    rng, sources, emails = random.Random(20_261_127), list[str](), list[str]()
    refused = 0
    for number in range(COUNT):
        source = generate(rng)
        try:
            email = render(rng, source)
        except MergeError:
            refused += 1
            continue
        sources.append(source)
        emails.append(email)
        if len(emails) == BATCH or number == COUNT - 1:
            active = page.evaluate(_FIND_ACTIVE, emails)
            assert active == [], [(what, sources[place], emails[place][:3000]) for place, what in active[:3]]
            sources, emails = [], []
    assert refused < COUNT * 0.8


def test_the_browser_finds_what_is_active(page: Page) -> None:
    """The check finds attacks in HTML that was not sanitized."""
    attacks = ["<img src=x onerror=alert(1)>", "<svg></svg>", "<a href='java\tscript:alert(1)'>x</a>",
               "<script></script>", "<p style='background:url(//x.test)'>x</p>", "<form></form>",
               '<noscript><p title="</noscript><img src=x onerror=alert(1)>">']  # fmt: skip
    active = page.evaluate(_FIND_ACTIVE, attacks)
    assert {number for number, _ in active} == set(range(len(attacks)))
