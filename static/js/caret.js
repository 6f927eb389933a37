/* In the frame that shows an email: its texts are written where they stand. The page keeps what is typed, by its field. */
(() => {
  "use strict";
  const { email } = window, { say } = email;
  let now;

  // A line is written in its heading or its button; a rich text in what holds its paragraphs.
  const place = (one, rich) => {
    const found = [...document.querySelectorAll(rich ? "p, ul, ol" : "h1, h2, h3, h4, a")].find((node) => email.holds(one, node));
    return rich ? found?.parentElement : found;
  };
  // Paragraphs look as they did: what the email says of them is put on, and taken off before it is told.
  const worn = (host) => {
    const said = Object.fromEntries(["p", "ul", "ol", "li", "a"].map((name) => [name, host.querySelector(name)?.getAttribute("style")]));
    return (within) => {
      for (const [name, style] of Object.entries(said)) if (style) for (const one of within.querySelectorAll(`${name}:not([style])`)) {
        one.setAttribute("style", style);
        one.dataset.worn = "";
      }
    };
  };
  const tell = () => {
    const copy = now.host.cloneNode(true);
    for (const chip of copy.querySelectorAll("[data-tag]")) chip.replaceWith(chip.dataset.tag);
    for (const one of copy.querySelectorAll("[data-worn]")) one.removeAttribute("style"), one.removeAttribute("data-worn");
    say("wrote", { id: now.one.id, text: now.rich ? copy.innerHTML : copy.textContent });
  };
  const write = ({ id, html, rich }) => {
    email.leave();
    const one = email.sections.find((other) => other.id === id), host = one && place(one, rich);
    if (!host || email.locked) return say("unwritable", { id });
    const dress = worn(host);
    host.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    dress(host);
    host.contentEditable = rich ? "true" : "plaintext-only";
    if (rich) document.execCommand("defaultParagraphSeparator", false, "p");
    host.dataset.writing = "";
    host.role = "textbox";
    now = { one, host, rich, dress };
    email.writing = host;
    host.addEventListener("blur", email.leave);
    host.focus();
    getSelection().selectAllChildren(host);
    getSelection().collapseToEnd();
    const typed = email.entering?.id === id && email.entering.text;
    email.entering = null;
    if (typed) document.execCommand("insertText", false, typed);
    email.paint();
  };
  email.leave = () => {
    if (!now) return;
    const { host, one } = now;
    email.writing = now = null;
    host.removeEventListener("blur", email.leave);
    for (const name of ["contenteditable", "data-writing", "role"]) host.removeAttribute(name);
    host.blur();
    email.stale(one);
    say("left", { id: one.id });
    email.paint();
  };

  email.on("input", () => {
    if (!now) return;
    now.dress(now.host);
    tell();
    email.paint();
  });
  email.on("keydown", (event) => {
    const { key, ctrlKey, metaKey, shiftKey } = event, ctrl = ctrlKey || metaKey, low = key.toLowerCase();
    if (!now || event.isComposing) return;
    if (key === "Escape" || (key === "Enter" && !now.rich)) event.preventDefault(), email.leave();
    if (ctrl && (low === "z" || low === "y")) {
      const { id } = now.one;
      event.preventDefault();
      email.leave();
      say("step", { id, way: low === "y" || shiftKey ? "redo" : "undo" });
    }
    if (ctrl && low === "s") event.preventDefault(), say("key", { key, ctrlKey, metaKey });
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
