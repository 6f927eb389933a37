/* Between an editor's page and the frame that shows its email: what changed goes in, what a hand did comes out. */
(() => {
  "use strict";
  const stage = document.getElementById("stage"), canvas = document.getElementById("canvas");
  if (!canvas) return;
  const here = `/templates/${stage.dataset.t}`, note = stage.querySelector("[data-stage-note]");
  const shown = { as: stage.dataset.as || "", id: null, have: [], ready: false };
  let busy = false, again = false;
  const tell = (message) => canvas.contentWindow.postMessage(message, "*");
  const emit = (name, detail = {}) => document.dispatchEvent(new CustomEvent(`canvas:${name}`, { detail }));
  const say = (text) => { note.hidden = !text; note.textContent = text; };
  const reload = () => { shown.ready = false; canvas.contentWindow.location.replace(`${here}/canvas?as=${shown.as}`); };

  // The server says what is to be seen now; one question at a time, and once more if something happened meanwhile.
  const sync = async () => {
    if (!shown.ready) return;
    if (busy) { again = true; return; }
    busy = true;
    again = false;
    try {
      const answer = await fetch(`${here}/rows?as=${shown.as}&have=${shown.have}`, { headers: { accept: "application/json" } });
      const told = answer.headers.get("content-type")?.includes("json") ? await answer.json() : {};
      if (told.frame && (told.rows || told.frame[0] !== shown.have[0])) tell(told);
      say(told.error || "");
    } catch {
      setTimeout(sync, 3000);
    }
    busy = false;
    if (again) sync();
  };
  for (const name of ["section", "sections", "theme"]) document.addEventListener(name, sync);

  const hear = {
    ready({ have }) { Object.assign(shown, { have, ready: true }); tell({ id: shown.id }); emit("ready"); if (again) sync(); },
    shown({ have }) { shown.have = have; stage.dataset.shown = have.join(); },
    reload,
    select({ id }) { shown.id = id; emit("select", { id }); },
    edit({ id }) { shown.id = id; emit("edit", { id }); },
    move({ id, before, into }) { emit("move", { id, before, into }); },
    add({ kind, before, into }) { emit("add", { kind, before, into }); },
    hover({ over }) { stage.toggleAttribute("data-hover", over); },
    act({ id, act }) { emit("act", { id, act }); },
    key(keys) { canvas.dispatchEvent(new KeyboardEvent("keydown", { ...keys, bubbles: true, cancelable: true })); },
  };
  addEventListener("message", ({ source, data }) => {
    if (source === canvas.contentWindow && Object.hasOwn(hear, data?.to)) hear[data.to](data);
  });
  const look = () => tell({ view: stage.dataset.view, locked: "locked" in stage.dataset });
  const hello = () => { look(); tell({ to: "hello" }); };
  canvas.addEventListener("load", hello);
  hello();

  document.addEventListener("canvas:show", ({ detail: { id } }) => {
    shown.id = id;
    tell({ id, scroll: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  });

  // How it is looked at: two widths, and two ways of being dark.
  const view = (name) => {
    stage.dataset.view = name;
    const main = name === "forced" ? "dark" : name;
    for (const one of document.querySelectorAll("[data-view]:is(button)")) one.setAttribute("aria-pressed", one.dataset.view === (one.closest("[data-darks]") ? name : main));
    for (const one of document.querySelectorAll("[data-darks]")) one.hidden = main !== "dark";
    look();
  };
  document.addEventListener("dragstart", () => stage.removeAttribute("data-hover"), true);
  document.addEventListener("view", ({ detail }) => view(detail.view));
  const see = (id, words) => {
    shown.as = id;
    for (const one of document.querySelectorAll("[data-as-name]")) one.textContent = words;
    sync();
  };
  document.addEventListener("canvas:as", ({ detail }) => see(detail.id || "", detail.name || ""));
  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("button[data-view], button[data-as]");
    if (button?.dataset.view) view(button.dataset.view);
    else if (button) {
      button.closest("[popover]")?.hidePopover();
      see(button.dataset.as, button.dataset.name);
    }
  });
})();
