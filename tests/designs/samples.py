"""Sample documents: one for every kind of section, and a whole email; the golden files are rendered from them."""

from typing import Any

from appliance.content.designs.theme import Look

LOOK = Look(
    company_name="Bell & Hammer", physical_address="Hauptstraße 12, 8010 Graz", brand_color="#0b6e4f",
    text_color="#1f2328", bg_color="#f3f1ec", font_heading="Georgia",
    links=(("Instagram", "https://instagram.com/bellhammer"), ("YouTube", "https://youtube.com/@bellhammer"),
           ("Our diary", "https://diary.bellhammer.example")),
)  # fmt: skip
_PICTURES = "https://pictures.example"
_SHOP = "https://bellhammer.example"


def _document(*sections: dict[str, Any]) -> dict[str, Any]:
    return {"sections": list(sections)}


def _one(kind: str, **props: Any) -> dict[str, Any]:
    return {"type": kind, "props": props}


_BELL = {
    "name": "Table bell", "price": "€ 38", "old_price": "€ 45", "image_url": f"{_PICTURES}/bell.jpg",
    "href": f"{_SHOP}/table-bell", "description": "Cast in one piece, rung by hand. It sounds an A.",
    "button": {"text": "View"},
}  # fmt: skip
_TEXT = (
    "<p>We have been casting bells since 1871, and <strong>never two alike</strong>. Last week the furnace was lit for "
    'the first time this winter; here is <a href="https://bellhammer.example/diary?from=mail&amp;n=1">what came out of '
    "it</a>.</p><ul><li>one bell for a school</li><li>one for a ship</li></ul><p>Come and hear them, "
    '{{ contact.first_name | default: "friend" }}.</p>'
)

SAMPLES: dict[str, dict[str, Any]] = {
    "header": _document(
        _one("header", links=[{"text": "Shop", "href": _SHOP}, {"text": "Diary", "href": "bellhammer.example/diary"}]),
        _one("header", logo_url=f"{_PICTURES}/logo.png", logo_alt="Bell & Hammer", layout="centered"),
    ),
    "hero": _document(
        _one("hero", background_url=f"{_PICTURES}/workshop.jpg", title="The furnace is lit",
             cta_text="See the workshop",
             subtitle="Three days of fire, and a bell for every one of them.", cta_url=_SHOP, overlay=50),
        _one("hero", image_url=f"{_PICTURES}/workshop.jpg", title="New bells for winter", cta_text="Have a look",
             subtitle="Small ones, loud ones, and one that is neither.", cta_url=f"{_SHOP}/winter"),
    ),
    "heading": _document(
        _one("heading", text="Bells & hammers", level=1),
        _one("heading", text="What came out of the furnace"),
        _one("heading", text='For {{ contact.first_name | default: "you" }}', level=3, align="center"),
    ),
    "text": _document(
        _one("text", content=_TEXT),
        {"type": "text", "props": {"content": "A note on a ground of its own.\n\nIt has two paragraphs.", "size": 15},
         "styles": {"background_color": "#fff4d6", "padding": "20 32"}},
    ),
    "list": _document(
        _one("list", items=[{"text": "Cast by hand"}, {"text": 'Tuned by ear, <a href="https://bellhammer.example/ear">'
                                                               "as it should be</a>"}]),
        _one("list", style="number", items=[{"title": "Choose a tone", "text": "We have recordings of all of them."},
                                            {"title": "Choose a wood", "text": "Ash and oak, from our own forest."}]),
        _one("list", style="check", items=[{"text": "Delivered within a week"}, {"text": "Thirty days to return it"}]),
        _one("list", style="icon", items=[{"icon": "🔔", "title": "A bell a month", "text": "Three small ones."},
                                          {"icon": "🔥", "title": "Visit the fire", "text": "Every first Saturday."}]),
    ),
    "quote": _document(
        _one("quote", text="I ring it when the soup is ready. Nobody has been late since.", author="Ines Horvat",
             role="cook in Maribor", photo_url=f"{_PICTURES}/ines.jpg"),
        _one("quote", text="It is the only thing in this house that all listen to.", author="Paul", align="center"),
    ),
    "button": _document(
        _one("button", text="See all bells", href=_SHOP, note="Free delivery until Sunday"),
        _one("button", text="Read the diary", href=f"{_SHOP}/diary", style="outline", align="center"),
        _one("button", text="Come to the fire", href=f"{_SHOP}/fire", width="full", background_color="#7a2e0e",
             border_radius="pill"),
        _one("button", text="or write to us", href="mailto:hello@bellhammer.example", style="link", align="center"),
    ),
    "image": _document(
        _one("image", src=f"{_PICTURES}/workshop.jpg", alt="The workshop in the morning", href=_SHOP, border_radius=8),
        _one("image", src=f"{_PICTURES}/mark.png", dark_src=f"{_PICTURES}/mark-light.png", alt="Our mark", width=30),
    ),
    "split": _document(
        _one("split", src=f"{_PICTURES}/bell.jpg", alt="A small bell on a table", title="Small, but heard",
             text="The table bell is the smallest one that we cast.", button={"text": "View it", "href": _SHOP}),
        _one("split", src=f"{_PICTURES}/workshop.jpg", alt="The workshop", side="right", ratio="2:1",
             title="Where they are made", text="Between the river and the railway."),
    ),
    "columns": _document(
        _one("columns", preset="1:2", columns=[
            {"sections": [_one("image", src=f"{_PICTURES}/bell.jpg", alt="A bell", border_radius=8)]},
            {"sections": [
                _one("heading", text="One column, two columns", level=3),
                _one("text", content="What stands beside each other on a desk stands below each other on a phone."),
                _one("columns", columns=[
                    {"sections": [_one("text", content="Left of the right.")]},
                    {"sections": [_one("button", text="Right", href=_SHOP, style="outline")]},
                ]),
            ]},
        ]),
        _one("columns", preset="1:1:1", gap=24, columns=[
            {"sections": [_one("heading", text="1871", align="center"),
                          _one("text", content="the first bell", align="center")]},
            {"sections": [_one("heading", text="12", align="center"),
                          _one("text", content="people at the fire", align="center")]},
            {"sections": [{"type": "heading", "props": {"text": "A", "align": "center"},
                           "styles": {"background_color": "#0b6e4f"}},
                          _one("text", content="is what they sound", align="center")]},
        ]),
    ),
    "product": _document(_one("product", **_BELL | {"button": {"text": "Put it on the table"}})),
    "product_grid": _document(
        _one("product_grid", items=[
            _BELL,
            {"name": "Ship’s bell", "price": "€ 120", "image_url": f"{_PICTURES}/workshop.jpg", "href": f"{_SHOP}/ship",
             "description": "Brass, with a rope that sailors would know.", "button": {"text": "View"}},
            {"name": "Hammer", "price": "€ 24", "image_url": f"{_PICTURES}/hammer.jpg", "href": f"{_SHOP}/hammer"},
        ]),
    ),
    "gallery": _document(
        _one("gallery", items=[{"src": f"{_PICTURES}/{name}.jpg", "alt": words, "href": _SHOP} for name, words in
                               (("bell", "A bell"), ("workshop", "The workshop"), ("hammer", "A hammer"),
                                ("ines", "Ines"))]),
        _one("gallery", columns=3, items=[{"src": f"{_PICTURES}/{name}.jpg", "alt": words} for name, words in
                                          (("bell", "A bell"), ("hammer", "A hammer"), ("ines", "Ines"))]),
    ),
    "coupon": _document(
        _one("coupon", code="WINTER-15", text="<p><strong>15 % off every bell</strong><br>until the fire goes out</p>",
             expires_at="2026-12-31", button={"text": "Use it now", "href": f"{_SHOP}/?code=WINTER-15"}),
    ),
    "video": _document(
        _one("video", href="https://video.example/fire", thumbnail=f"{_PICTURES}/workshop.jpg",
             caption="How a bell is cast (2 minutes)"),
        _one("video", href="https://video.example/fire", caption="The same, without a still"),
    ),
    "divider": _document(
        _one("divider"), _one("divider", width=30, thickness=3, color="theme:brand"), _one("divider", style="dashed"),
    ),
    "spacer": _document(_one("text", content="Above"), _one("spacer", height=48), _one("text", content="Below")),
    "social": _document(
        _one("social"),
        _one("social", style="ink", links=[{"platform": name, "url": f"https://{name}.com/bellhammer"} for name in
                                           ("facebook", "x", "linkedin", "tiktok")]),
        _one("social", style="outline", size=20, align="left",
             links=[{"platform": "mastodon", "url": "https://mastodon.social/@bell"},
                    {"platform": "Newsletter archive", "url": f"{_SHOP}/archive"}]),
    ),
    "footer": _document(
        _one("text", content="The end of a mail."),
        _one("footer", text="You hear from us because you bought a bell.",
             links=[{"text": "Shop", "href": _SHOP}, {"text": "Legal notice", "href": f"{_SHOP}/legal"}]),
    ),
    "html": _document(
        _one("html", html='<table width="100%" style="font-size:14px" onclick="x()"><tr><th align="left">Bell</th>'
                          '<th align="right">Tone</th></tr><tr><td>Table</td><td align="right">A</td></tr></table>'
                          "<script>alert(1)</script><p>Tones as of <em>today</em>.</p>"),
    ),
}  # fmt: skip

MAIL = {
    "sections": [
        _one("header", links=[{"text": "Shop", "href": _SHOP}, {"text": "Diary", "href": f"{_SHOP}/diary"}]),
        SAMPLES["hero"]["sections"][0],
        _one("heading", text='Good morning, {{ contact.first_name | default: "friend" }}', level=1),
        _one("text", content=_TEXT),
        _one("button", text="Read the diary", href=f"{_SHOP}/diary"),
        _one("divider"),
        SAMPLES["split"]["sections"][0],
        SAMPLES["product_grid"]["sections"][0],
        SAMPLES["quote"]["sections"][0],
        {"type": "coupon", "props": SAMPLES["coupon"]["sections"][0]["props"]
         | {"show_if": [{"name": "contact_tag", "predicate": "eq", "value": "friend"}]}},
        _one("social"),
        _one("footer", text="You hear from us because you bought a bell."),
    ]
}  # fmt: skip
EVERY: dict[str, dict[str, Any]] = {**SAMPLES, "mail": MAIL}
