/* Rich text: reduces HTML to what the text of an email may contain, in paragraphs and lists. */
(() => {
  "use strict";
  const { merge } = window;
  const ELEMENTS = { B: "strong", STRONG: "strong", I: "em", EM: "em", U: "u", S: "s", A: "a", UL: "ul", OL: "ol", LI: "li", BR: "br", P: "p", SPAN: "span", SUB: "sub", SUP: "sup", CODE: "code" };
  const BLOCKS = /^(DIV|H[1-6]|BLOCKQUOTE|PRE|SECTION|ARTICLE|HEADER|FOOTER|DT|DD|TR|FIGCAPTION|CENTER)$/, DROPPED = /^(SCRIPT|STYLE|HEAD|TITLE|META|LINK|IMG|SVG|IFRAME|OBJECT|TEMPLATE|NOSCRIPT)$/;
  const STYLES = ["color", "text-align", "font-weight", "font-style"];
  const ADDRESS = /^(https?:|mailto:|tel:|sms:|\{\{)/i;

  // Answers nodes that hold nothing but what is kept; `text` makes what a text is.
  const cut = (from, text, pasted) => {
    const into = document.createDocumentFragment();
    for (const node of from.childNodes) {
      if (node.nodeType === 3) into.append(...text(node.data));
      if (node.nodeType !== 1 || DROPPED.test(node.nodeName.toUpperCase())) continue;
      const name = ELEMENTS[node.nodeName] || (BLOCKS.test(node.nodeName) && "p"), inner = cut(node, text, pasted);
      if (!name || (name === "span" && (pasted || !(node.dataset.style || node.getAttribute("style")))) || (name === "p" && node.closest("li, p p"))) { into.append(inner); continue; }
      const element = document.createElement(name);
      if (name === "a" && ADDRESS.test(node.getAttribute("href") || "")) element.setAttribute("href", node.getAttribute("href"));
      const styles = Object.assign(document.createElement("i"), { style: node.dataset.style || node.getAttribute("style") || "" }).style;
      if (!pasted) for (const style of STYLES) if (styles[style]) element.style.setProperty(style, styles[style]);
      element.append(inner);
      into.append(element);
    }
    return into;
  };
  // HTML is written anew before any parser of the browser sees it: no attribute but these, and nothing that would act.
  const ACTIVE = /<(script|style|head|title|svg|math|iframe|object|noscript|template|textarea|xmp)\b[^]*?(<\/\1\s*>|$)/gi;
  const TAG = /<!--[^]*?(?:-->|$)|<(\/?[a-z][^\s\/>]*)((?:"[^"]*"|'[^']*'|[^'">])*)>|[<>]/gi;
  const ATTRIBUTE = /([^\s"'<>\/=]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>`]+))/g;
  const neutralize = (html) => html.replace(ACTIVE, "").replace(TAG, (all, name, attributes) => {
    if (!name) return all === "<" ? "&lt;" : all === ">" ? "&gt;" : "";
    let tag = `<${name.replace(/[^\w\/:-]/g, "")}`;
    for (const [, key, ...values] of (attributes || "").matchAll(ATTRIBUTE)) {
      const to = { href: "href", style: "data-style", "data-style": "data-style" }[key.toLowerCase()];
      if (to) tag += ` ${to}="${(values.find((value) => value !== undefined) || "").replaceAll('"', "&quot;")}"`;
    }
    return `${tag}>`;
  });
  const parse = (html) => new DOMParser().parseFromString(neutralize(html), "text/html").body;
  // What stands outside of paragraphs and lists gets a paragraph.
  const wrapBlocks = (root) => {
    for (let node = root.firstChild, open = null; node; ) {
      const next = node.nextSibling, block = /^(P|UL|OL)$/.test(node.nodeName);
      if (block) {
        open = null;
        if (node.nodeName === "P" && node.querySelector("p, ul, ol")) node.replaceWith(...node.childNodes);
      } else if (open || node.textContent.replace("\u200b", "").trim() || node.nodeName === "BR") {
        if (!open) node.before((open = document.createElement("p")));
        open.append(node);
      }
      node = next;
    }
    return root;
  };

  const rich = (window.rich = { ADDRESS, cut: (html) => wrapBlocks(cut(parse(html), merge.chipped, true)) });
  rich.nodesOf = (value) => {
    const html = value && !/<[a-z]/i.test(value) ? value.split(/\n{2,}/).map((paragraph) => `<p>${paragraph.replaceAll("<", "&lt;").replaceAll("\n", "<br>")}</p>`).join("") : value;
    const body = wrapBlocks(cut(parse(html), merge.chipped));
    if (!body.childNodes.length) body.append(Object.assign(document.createElement("p"), { innerHTML: "<br>" }));
    return body.childNodes;
  };
  rich.read = (copy) => {
    const body = wrapBlocks(cut(copy, (text) => [text.replaceAll(merge.gap, "")]));
    if (!body.textContent.trim()) return "";
    const box = document.createElement("div");
    box.append(body);
    for (const element of box.querySelectorAll("strong:empty, em:empty, u:empty, span:empty")) element.remove();
    return box.innerHTML.replace(/<br><\/p>/g, "</p>").replace(/(<p>(\s|&nbsp;)*<\/p>)+$/, "");
  };
  // A popover at what it belongs to, where there is room.
  rich.beside = (popover, anchor) => {
    const { left, top, bottom } = anchor.getBoundingClientRect();
    popover.showPopover();
    const { offsetWidth: wide, offsetHeight: high } = popover;
    const spot = bottom + high + 12 < innerHeight || top < high ? Math.min(bottom + 4, innerHeight - high - 8) : top - high - 8;
    popover.style.inset = `${Math.max(8, spot)}px auto auto ${Math.max(8, Math.min(left, innerWidth - wide - 12))}px`;
  };
})();
