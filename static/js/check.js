/* Reports mistyped addresses and numbers when their field is left. The server checks again, with the same texts. */
(() => {
  "use strict";
  const forms = {
    email: [/^[^\s@]+@[^\s@]+\.[^\s@]+$/, t("Enter an email address like name@example.com.")],
    tel: [/^\+[1-9][\d\s().-]{6,}$/, t("Enter the number with its country code, like +44 20 7946 0018.")],
  };
  // In a form that asks for this, what the server found missing is no longer said once the field has a value.
  const clearError = (field, box) => {
    const error = box.querySelector(".err");
    if (!error || !field.value.trim() || !field.closest("[data-answers]")) return;
    for (const element of [box, ...box.querySelectorAll("[aria-describedby]")]) {
      const ids = (element.getAttribute("aria-describedby") || "").split(" ");
      if (!ids.includes(error.id)) continue;
      const rest = ids.filter((id) => id && id !== error.id).join(" ");
      rest ? element.setAttribute("aria-describedby", rest) : element.removeAttribute("aria-describedby");
      element.removeAttribute("aria-invalid");
    }
    const line = document.querySelector(`.banner li:has(> a[href="#${CSS.escape(error.id.replace(/-err$/, ""))}"])`);
    const banner = line?.closest(".banner");
    line?.remove();
    if (banner && !banner.querySelector("li")) banner.remove();
    error.remove();
  };
  const check = (field) => {
    const box = field.closest?.(".field"), [form, words] = forms[field.type] || [];
    if (!form && box) return clearError(field, box);
    if (!form || !box || !field.id || field.closest("[data-autosave]")) return;
    const wrong = field.value.trim() && !form.test(field.value.trim()), id = `${field.id}-err`;
    box.querySelector(".err")?.remove();
    if (wrong) {
      const text = Object.assign(document.createElement("p"), { className: "err", id });
      const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg"), use = document.createElementNS(icon.namespaceURI, "use");
      icon.setAttribute("class", "icon");
      icon.setAttribute("aria-hidden", "true");
      use.setAttribute("href", `${document.body.dataset.icons}#circle-alert`);
      icon.append(use);
      text.append(icon, Object.assign(document.createElement("span"), { textContent: words }));
      box.append(text);
    }
    wrong ? field.setAttribute("aria-invalid", "true") : field.removeAttribute("aria-invalid");
    const ids = (field.getAttribute("aria-describedby") || "").split(" ").filter((other) => other && other !== id);
    field.setAttribute("aria-describedby", [...ids, ...(wrong ? [id] : [])].join(" "));
    if (!field.getAttribute("aria-describedby")) field.removeAttribute("aria-describedby");
  };
  // A field is left by pressing a button, too: nothing moves that button away before it is let go.
  let held = false;
  addEventListener("pointerdown", () => { held = true; }, true);
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { held = false; }, true);
  document.addEventListener("change", (event) => {
    if (held) addEventListener("pointerup", () => setTimeout(check, 50, event.target), { once: true });
    else check(event.target);
  });
})();
