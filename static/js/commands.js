/* The caret of a field with merge tags, and the commands of a rich text: bold, italic, link, list, clear. */
(() => {
  "use strict";
  const { merge, rich, rich: { ADDRESS } } = window;
  rich.Typed = class extends HTMLElement {
    // Where the caret was, or the end.
    keep() {
      const selection = getSelection();
      if (selection.rangeCount && this.editor.contains(selection.anchorNode)) this.range = selection.getRangeAt(0).cloneRange();
    }
    caret() {
      const range = this.range?.startContainer.isConnected ? this.range : new Range();
      if (range !== this.range) range.selectNodeContents(this.mode === "rich" && this.editor.lastElementChild || this.editor), range.collapse();
      return range;
    }
    // Puts a chip in, or a link with words of its own, for so many characters before the caret.
    put(chip, cut, words) {
      const range = this.caret(), after = document.createTextNode(merge.gap);
      let node = chip;
      if (words && this.mode === "rich") (node = document.createElement("a")).setAttribute("href", chip.dataset.tag), node.textContent = words;
      if (cut) range.setStart(range.startContainer, Math.max(0, range.startOffset - cut));
      range.deleteContents();
      range.insertNode(after);
      range.insertNode(node);
      if (node.previousSibling?.nodeType !== 3) node.before(merge.gap);
      this.editor.focus();
      getSelection().collapse(after, 1);
      this.keep();
    }
  };

  rich.commands = (field) => {
    const { editor } = field, bar = field.querySelector(".fieldbar"), row = field.querySelector(".linkrow");
    document.execCommand("defaultParagraphSeparator", false, "p");
    const input = row.querySelector("input"), linkAt = () => getSelection().anchorNode?.parentElement?.closest("merge-field a");
    const run = (name, value) => {
      const at = field.caret();
      editor.focus();
      getSelection().removeAllRanges();
      getSelection().addRange(at);
      document.execCommand(name, false, value);
      field.keep();
      field.changed();
    };
    const open = () => { field.keep(); input.value = linkAt()?.getAttribute("href") || ""; row.hidden = false; input.focus(); };
    const set = (href) => {
      row.hidden = true;
      const { startContainer } = field.caret(), link = (startContainer.parentElement || editor).closest("merge-field a");
      const full = href && !ADDRESS.test(href) ? (href.includes("@") ? `mailto:${href}` : `https://${href}`) : href;
      if (link && full) link.setAttribute("href", full), field.changed();
      else if (link) link.replaceWith(...link.childNodes), field.changed();
      else if (full && field.caret().collapsed) run("insertHTML", Object.assign(document.createElement("a"), { href: full, textContent: href }).outerHTML);
      else if (full) run("createLink", full);
      editor.focus();
    };
    bar.addEventListener("mousedown", (event) => event.preventDefault());
    bar.addEventListener("click", ({ target }) => {
      const name = target.closest("[data-command]")?.dataset.command;
      if (name === "link") open();
      else if (name) run(name);
    });
    row.addEventListener("click", ({ target }) => { if (target.closest("button")) set("set" in target.dataset ? input.value.trim() : ""); });
    row.addEventListener("keydown", (event) => {
      if (event.key === "Enter") event.preventDefault(), set(input.value.trim());
      if (event.key === "Escape") event.stopPropagation(), (row.hidden = true), editor.focus();
    });
    for (const name of ["input", "change"]) row.addEventListener(name, (event) => event.stopPropagation());
    editor.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") event.preventDefault(), event.stopPropagation(), open();
    });
    editor.addEventListener("paste", (event) => {
      const html = event.clipboardData.getData("text/html");
      if (!html) return;
      event.preventDefault();
      const box = document.createElement("div");
      box.append(rich.cut(html));
      document.execCommand("insertHTML", false, box.children.length === 1 && box.firstChild.nodeName === "P" ? box.firstChild.innerHTML : box.innerHTML);
    });
  };
})();
