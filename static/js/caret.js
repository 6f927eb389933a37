/* In the frame of an email: editing texts in place. The page stores what is typed in the field of the text. */
(() => {
  "use strict";
  const { email } = window, { say } = email;
  let now;

  // A line is written in its heading or its button; a rich text in what holds its paragraphs.
  const findHost = (section, rich) => {
    const element = [...document.querySelectorAll(rich ? "p, ul, ol" : "h1, h2, h3, h4, a")].find((node) => email.holds(section, node));
    return rich ? element?.parentElement : element;
  };
  // Paragraphs look as they did: what the email says of them is put on, and taken off before it is told.
  const copyStyles = (host) => {
    const styles = Object.fromEntries(["p", "ul", "ol", "li", "a"].map((name) => [name, host.querySelector(name)?.getAttribute("style")]));
    return (within) => {
      for (const [name, style] of Object.entries(styles)) if (style) for (const element of within.querySelectorAll(`${name}:not([style])`)) {
        element.setAttribute("style", style);
        element.dataset.styled = "";
      }
    };
  };
  // The caret goes to where the click was. A merge tag is a chip in what is written and a value in what was shown: the
  // caret is found again by the words before it in its paragraph, else by those after it.
  const blocks = (host) => { const elements = [...host.querySelectorAll("p, li")]; return elements.length ? elements : [host]; };
  const withoutSpaces = (text) => text.replace(/[\s\u200b]+/g, "");
  const caretAt = (host, { x, y }) => {
    const { left, right, top, bottom } = host.getBoundingClientRect();
    const [nearX, nearY] = [Math.max(left + 1, Math.min(x, right - 1)), Math.max(top + 1, Math.min(y, bottom - 1))];
    const spot = document.caretPositionFromPoint?.(nearX, nearY), range = spot ? null : document.caretRangeFromPoint?.(nearX, nearY);
    const [node, offset] = spot ? [spot.offsetNode, spot.offset] : range ? [range.startContainer, range.startOffset] : [];
    return node && host.contains(node) ? { node, offset } : null;
  };
  const wordsAround = (host, { node, offset }) => {
    const all = blocks(host), index = all.findLastIndex((block) => block.contains(node)), range = new Range();
    if (index < 0) return null;
    range.selectNodeContents(all[index]);
    range.setEnd(node, offset);
    const before = range.toString();
    range.selectNodeContents(all[index]);
    range.setStart(node, offset);
    return { index, of: all.length, before: withoutSpaces(before), after: withoutSpaces(range.toString()), spaced: /\s$/.test(before) };
  };
  // Behind so many letters of a paragraph, and behind the space that follows them if it was; never within a chip.
  const findPosition = (block, count, spaced) => {
    const walk = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) {
      const chip = node.parentElement.closest("[data-tag]");
      for (let at = 0; at <= node.length; at += 1) {
        const letter = at < node.length && withoutSpaces(node.data[at]);
        if (!count && !chip && !(spaced && /\s/.test(node.data[at] || ""))) return { node, offset: at };
        if (letter) count -= 1;
      }
    }
    return null;
  };
  const findCaret = (host, words) => {
    const all = blocks(host), block = words && words.of === all.length && all[words.index];
    if (!block) return null;
    const text = withoutSpaces(block.textContent), { before, after, spaced } = words;
    const count = text.startsWith(before) ? before.length : text.endsWith(after) ? text.length - after.length : -1;
    return count < 0 ? null : findPosition(block, count, spaced);
  };
  const sendText = () => {
    const copy = now.host.cloneNode(true);
    for (const chip of copy.querySelectorAll("[data-tag]")) chip.replaceWith(chip.dataset.tag);
    for (const element of copy.querySelectorAll("[data-styled]")) element.removeAttribute("style"), element.removeAttribute("data-styled");
    say("wrote", { id: now.section.id, text: now.rich ? copy.innerHTML : copy.textContent });
  };
  const begin = (section, host, { html, rich }) => {
    const applyStyles = copyStyles(host), was = [...host.childNodes];
    host.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    applyStyles(host);
    host.contentEditable = rich ? "true" : "plaintext-only";
    if (rich) document.execCommand("defaultParagraphSeparator", false, "p");
    host.dataset.writing = "";
    host.role = "textbox";
    now = { section, host, rich, applyStyles, was, changed: false };
    email.writing = host;
    host.addEventListener("blur", email.leave);
    host.focus({ preventScroll: true });
    getSelection().selectAllChildren(host);
  };
  const typeIn = (text) => {
    getSelection().collapseToEnd();
    if (text) document.execCommand("insertText", false, text);
  };
  const write = ({ id, html, rich }) => {
    email.leave();
    const section = email.sections.find((other) => other.id === id), host = section && findHost(section, rich);
    if (!host || email.locked) return say("unwritable", { id });
    begin(section, host, { html, rich });
    const typed = email.entering?.id === id && email.entering.text;
    email.entering = null;
    typeIn(typed);
    email.paint();
  };
  // Begins to write in a text that is known here already: the caret is where the click was, or all is selected, or the
  // first letters go to its end. Returns whether it did.
  email.enter = (section, { click, all, text } = {}) => {
    const known = email.locked ? null : email.texts[section.id], host = known && findHost(section, known.rich);
    if (!host || (click && host.nodeName === "A" && !host.contains(click.target))) return false;
    host.dataset.writing = ""; // may be selected in from here on
    // Leaving the text before may move this one: where the click was is read before that
    const spot = click && caretAt(host, click), words = spot && wordsAround(host, spot);
    email.leave();
    begin(section, host, known);
    const caret = click && (findCaret(host, words) || caretAt(host, click));
    if (caret) getSelection().collapse(caret.node, caret.offset);
    else if (!all) typeIn(text);
    email.paint();
    return true;
  };
  email.leave = () => {
    if (!now) return;
    const { host, section, was } = now, changed = now.changed || !!email.withheld;
    email.writing = now = email.withheld = null;
    host.removeEventListener("blur", email.leave);
    for (const name of ["contenteditable", "data-writing", "role"]) host.removeAttribute(name);
    host.blur();
    changed ? email.stale(section) : host.replaceChildren(...was);
    say("left", { id: section.id, changed });
    email.paint();
  };

  email.on("input", () => {
    if (!now) return;
    now.changed = true;
    now.applyStyles(now.host);
    sendText();
    email.paint();
  });
  email.on("keydown", (event) => {
    const { key, ctrlKey, metaKey, shiftKey } = event, ctrl = ctrlKey || metaKey, low = key.toLowerCase();
    if (!now || event.isComposing) return;
    if (key === "Escape" || (key === "Enter" && !now.rich)) event.preventDefault(), email.leave();
    if (ctrl && (low === "z" || low === "y")) {
      const { id } = now.section;
      event.preventDefault();
      email.leave();
      say("step", { id, way: low === "y" || shiftKey ? "redo" : "undo" });
    }
    if (ctrl && low === "s") event.preventDefault(), say("key", { key, ctrlKey, metaKey });
    if ((ctrl && low === "d") || (event.altKey && /^Arrow(Up|Down)$/.test(key))) {
      event.preventDefault();
      email.leave();
      say("key", { key, ctrlKey, metaKey, altKey: event.altKey });
    }
  });
  email.on("paste", (event) => {
    if (!now) return;
    event.preventDefault();
    const text = event.clipboardData.getData("text/plain");
    document.execCommand("insertText", false, now.rich ? text : text.replace(/\s+/g, " "));
  });
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || !("write" in data)) return;
    data.write ? write(data.write) : (email.entering = null, email.leave());
  });
})();
