"""Kinds of sections: properties, with choices in brackets and how many of what within; and how a kind is guessed."""

from tests.rules.contract.rows import lines

_KINDS = """
D header logo_url logo_alt logo_width wordmark_text background_color links[text,href] layout(left,centered)
D hero image_url background_url title subtitle cta_text cta_url overlay height
D heading text level(1,2,3) color size
D text content color size line_height
D list items[icon,title,text]0-12 style(bullet,number,check,icon)
D quote text author role photo_url
D button text href background_color text_color border_radius inner_padding style(filled,outline,link) width(fit,full) note
D image src alt decorative href width border_radius dark_src
D split src alt side(left,right) ratio(1:1,1:2,2:1) title text button[text,href]
D product name price old_price image_url href description button[text,href]
D product_grid items[name,price,old_price,image_url,href,description,button]2-6
D gallery items[src,alt,href]2-6 columns(2,3)
D columns columns[width,sections]2-4 preset(1:1,1:2,2:1,1:1:1,1:1:1:1) gap stack_on_phone
D coupon code text expires_at button[text,href] border(dashed,solid,none)
D video href thumbnail play_badge caption
D divider color width padding thickness style(solid,dashed)
D spacer height
D social links[platform,url] style(colour,ink,outline) size
D footer unsubscribe_text preferences view_in_browser text links[text,href]
D html html plain_text
"""  # noqa: E501 - a kind is a line
_OURS = """
O coupon expires_text -- the words before the date, in the language of the mail
O theme button_shape -- all buttons of a mail look alike
O theme width -- between 480 and 720 pixels
"""

KINDS = {line.cells[0]: line.cells[1:] for line in lines(_KINDS)}
OURS = {(line.cells[0], line.cells[1]) for line in lines(_OURS)}
COMMON = ("align", "hide_on(none,phone,desktop)", "show_if", "name")
THEME = ("brand_color", "bg_color", "text_color", "font_body", "font_heading", "logo_url")
STYLES = ("background_color", "padding")
LIMITS = {"sections": 200, "column_levels": 2}

# Properties without a type, and the kind that they are: the first match counts, so each row is a tie that it wins
GUESSES = (
    ({"columns": [], "unsubscribe_text": "x"}, "columns"), ({"unsubscribe_text": "x", "logo_url": "x"}, "footer"),
    ({"company_name": "x"}, "footer"), ({"address": "x"}, "footer"), ({"logo_url": "x", "items": []}, "header"),
    ({"logo_alt": "x"}, "header"), ({"wordmark_text": "x"}, "header"),
    ({"items": [{"price": "1", "src": "x"}], "code": "x"}, "product_grid"),
    ({"items": [{"src": "x"}], "code": "x"}, "gallery"), ({"items": [{"text": "x"}], "code": "x"}, "list"),
    ({"code": "x", "price": "x"}, "coupon"), ({"price": "x", "content": "x"}, "product"),
    ({"content": "x", "side": "left"}, "text"), ({"html": "x", "side": "left"}, "text"),
    ({"side": "left", "title": "x"}, "split"), ({"ratio": "1:1", "title": "x"}, "split"),
    ({"title": "x", "links": []}, "hero"), ({"subtitle": "x"}, "hero"), ({"cta_text": "x"}, "hero"),
    ({"background_url": "x"}, "hero"), ({"links": [], "src": "x"}, "social"), ({"src": "x", "text": "x"}, "image"),
    ({"text": "x", "href": "x", "level": 1}, "button"), ({"text": "x", "level": 1, "author": "x"}, "heading"),
    ({"text": "x", "author": "x"}, "quote"), ({"text": "x", "color": "red"}, "text"),
    ({"image_url": "x", "color": "red"}, "image"), ({"color": "red", "height": 8}, "divider"),
    ({"thickness": 2}, "divider"), ({"height": 8}, "spacer"), ({"label": "x", "url": "x"}, "button"),
    ({"url": "x"}, "image"),
)  # fmt: skip
