/* Fields with merge tags and rich text: an editable element over the form's own field, which keeps the value. */
(() => {
  "use strict";
  const { merge, rich } = window;

  class MergeField extends rich.Typed {
    static observedAttributes = ["value"];
    get mode() { return this.getAttribute("mode"); }

    connectedCallback() {
      const field = (this.field = this.querySelector("input, textarea"));
      if (this.editor || !field) return;
      const editor = (this.editor = document.createElement("div"));
      editor.className = `input ed ${this.mode}`;
      editor.contentEditable = "plaintext-only";
      if (this.mode === "rich" || editor.contentEditable !== "plaintext-only") editor.contentEditable = "true";
      const attributes = { role: "textbox", "aria-multiline": this.mode !== "line", "data-placeholder": field.placeholder, "aria-label": field.getAttribute("aria-label") };
      for (const [name, value] of Object.entries(attributes)) if (value !== null) editor.setAttribute(name, value);
      for (const name of ["aria-describedby", "aria-invalid"]) if (field.hasAttribute(name)) editor.setAttribute(name, field.getAttribute(name));
      this.called();
      field.tabIndex = -1;
      field.setAttribute("aria-hidden", "true");
      field.classList.add("sr");
      field.addEventListener("focus", () => editor.focus());
      this.note = this.querySelector("[data-weak]");
      this.querySelector(this.mode === "rich" ? ".linkrow" : "input, textarea").after(editor);
      if (this.mode === "rich") rich.commands(this);
      this.show(field.value);
      if (field.value.includes("{{")) merge.load(this.dataset.t);
      this.listen(editor);
    }
    // The label leads to what is typed into.
    called() {
      const label = document.querySelector(`label[for="${CSS.escape(this.field.id)}"]`);
      if (!label) return;
      label.id ||= `${this.field.id}-label`;
      label.removeAttribute("for");
      label.addEventListener("click", () => this.editor.focus());
      this.editor.setAttribute("aria-labelledby", label.id);
    }
    attributeChangedCallback(name, was, value) {
      // The server stores a line without spaces at its ends; while one types, or picks a tag, the caret has its place
      const busy = this.contains(document.activeElement) || merge.picksFor(this);
      if (!this.editor || value === this.field.value || value === this.field.value.trim() || (this.field.value !== this.was && busy)) return;
      this.field.value = value;
      this.show(value);
    }
    show(value) {
      this.editor.replaceChildren(...(this.mode === "rich" ? rich.nodesOf(value) : merge.chipped(value)));
      this.was = value;
      this.warn();
    }
    changed() {
      const copy = merge.plain(this.editor), text = (this.mode === "rich" ? rich.read(copy) : copy.textContent).replaceAll(merge.gap, "");
      const value = this.mode === "line" ? text.replace(/\s*\n\s*/g, " ") : text.replace(/\n$/, "");
      if (value === this.field.value) return;
      this.field.value = value;
      this.warn(true);
      this.field.dispatchEvent(new Event("input", { bubbles: true }));
    }
    done() {
      // Tags that were pasted become chips too
      if ([...this.editor.childNodes].some((node) => node.nodeType === 3 && /\{\{[^{}]+\}\}/.test(node.data))) this.show(this.field.value);
      if (this.was === this.field.value) return;
      this.was = this.field.value;
      this.field.dispatchEvent(new Event("change", { bubbles: true }));
    }
    warn(typed) {
      const weak = this.editor.querySelector(".merge.bad, .merge.warn");
      this.note.hidden = !weak && (typed || this.note.hidden);
      this.note.textContent = weak ? weak.title : "\u00a0";
      this.editor.toggleAttribute("data-empty", !this.field.value);
    }

    listen(editor) {
      editor.addEventListener("input", (event) => {
        event.stopPropagation();
        const { anchorNode: node, anchorOffset: spot } = getSelection();
        const before = node?.nodeType === 3 ? node.data.slice(0, spot) : "", whole = /\{\{[^{}]+\}\}$/.exec(before);
        if (whole) this.keep(), this.put(merge.chip(whole[0]), whole[0].length);
        else if (before.endsWith("{{")) this.keep(), merge.pick(this, editor, 2);
        this.changed();
      });
      editor.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && this.mode === "line") { event.preventDefault(); this.done(); }
      });
      editor.addEventListener("blur", () => this.keep());
      this.addEventListener("focusin", () => merge.load(this.dataset.t));
      this.addEventListener("focusout", ({ relatedTarget }) => { if (!this.contains(relatedTarget) && !relatedTarget?.closest(".merge-menu")) this.done(); });
      this.addEventListener("click", ({ target }) => {
        const chip = target.closest("[data-tag]"), button = target.closest("[data-pick]");
        if (chip) merge.edit(this, chip);
        if (button) this.keep(), merge.pick(this, button, 0);
      });
    }
  }
  customElements.define("merge-field", MergeField);
  // A label that was drawn anew calls the hidden field by name again
  document.addEventListener("htmx:after:swap", () => document.querySelectorAll("merge-field").forEach((field) => field.editor && field.called()));
})();
