"""HTML that takes a parser or an inliner of styles far more time or memory than its length, by what it exploits."""

# Short texts that, repeated, open one element in another for a parser that follows the standard, although each element
# has an end tag
DEEP_UNITS = (
    "<div><object></div></object>", "<span><div></span></div>", "<div><table></div></table>", "<td><div></td>",
    "<div><template></div></template>", "<div><svg><desc></div></svg></desc>", "<div><select></div></select>",
    "<div><table><caption></div></table></caption>", "<div><!--</div>-->", '<div title="</div>">',
    "<div><textarea></div></textarea>", "<select><style></select><div>", "<li><dd>", "<div><![CDATA[></div>]]>",
    '<div\N{NO-BREAK SPACE}a=\N{NO-BREAK SPACE}">',
)  # fmt: skip
# What a table or paragraph leaves open, each later block repeats
OPENED = "<p>" + "".join(f'<font face="Arial {number}">' for number in range(200)) + "</p>"
_BOLD = "<table>" + "".join(f"<b title={number}>" for number in range(200))
_NAMES = " ".join(f"a{number}" for number in range(90_000))
_PROPERTIES = [f"a{number}:0" for number in range(3_000)]
_LONG_RULE = "b{" + "".join(f"--a{number}:1;" for number in range(1_500)) + "}"

HOSTILE: dict[str, str] = {
    "divs": "<div>" * 100_000,
    "tables": "<table><tr><td>" * 100_000,
    "misnested": "<a><b><i><p>" * 60_000,
    "formatting": "<font size=1><p>" * 60_000,
    "attributes": "<p " + " ".join(f"a{number}=1" for number in range(100_000)) + ">",
    "quotes": '<p title="' * 100_000,
    "comments": "<!--" * 300_000,
    "conditions": "<!--[if mso]>" * 100_000,
    "styles": "<style>" * 200_000,
    "braces": f"<style>{'a{' * 300_000}</style><p>x</p>",
    "rules": f"<style>{''.join(f'.a{row} b,p:not(.c) i{{x:y}}' for row in range(5_000))}</style>{'<p>x</p>' * 5_000}",
    "selectors": f"<style>{''.join(f'p .a{number} {{x:y}}' for number in range(400))}</style>{'<p>x</p>' * 2_400}",
    "descendants": f"<style>{('div ' * 70 + '{color:red}') * 60}</style>{'<div>' * 200}{'x</div>' * 200}",
    "titles": "<title>" * 200_000,
    "heads": "<head>" * 200_000,
    "bodies": "<body>" * 200_000,
    "lesser": "<" * 1_500_000,
    "entities": "&lt;" * 400_000,
    "plain": f"<p>{'words ' * 300_000}</p>",
    "tags": "<p>{{ a }}</p>" * 1_900,
    "five megabytes": "<p>Hello</p>" * 430_000,
    **{f"deep: {unit}": unit * (200_000 // len(unit)) for unit in DEEP_UNITS},
    "attributes after a quote": f'<p x=" {_NAMES} ">x</p>',
    "attributes after a space and a quote": f'<p x=\N{NO-BREAK SPACE}" {_NAMES} ">x</p>',
    "end tags in deep elements": "<span><div></span></div>" * 600 + "</td>" * 300_000,
    "formatting left open": OPENED + "<p>x" * 3_000,
    "formatting left open in rows": f"{_BOLD}<tr></table>" + "<div>x</div>" * 3_000,
    "formatting left open before a cell": f"{_BOLD}<td></td></table>" + "<div>x</div>" * 3_000,
    "formatting left open before a caption": f"{_BOLD}<caption></caption></table>" + "<div>x</div>" * 3_000,
    "formatting left open in a table": f"{_BOLD}</table>" + "<div>x</div>" * 3_000,
    "a long value for capitals": f'<style>P{{font-family:"{"a" * 80_000}"}}</style><body>' + "<p>x</p>" * 300,
    "a long rule": f"<style>{_LONG_RULE}</style>" + "<b>x</b>" * 5_000,
    "many properties": f"<style>b{{{';'.join(_PROPERTIES)}}}</style>" + "<b>x</b>" * 40,
    "many properties of many rules": f"<style>{''.join(f'b{{{p}}}' for p in _PROPERTIES)}</style>" + "<b>x</b>" * 40,
}  # fmt: skip

# What the texts above are made of, for compositions of them
PIECES = (
    *DEEP_UNITS, "<font size=1>", "<b title=x>", "<a href=https://x.test/>", "<p>", "</p>", "<div>x</div>", "<table>",
    "<tr>", "<td>", "</table>", "<select>", "<svg>", "<math>", "<style>b{color:red;margin:0}", "</style>", "<b>x</b>",
    "<!--[if mso]>", "<![endif]-->", "<p a1 a2 a3 a4 a5", ">", "{{ a }}", "&lt;", "<template>", "<script>", "words ",
)  # fmt: skip
