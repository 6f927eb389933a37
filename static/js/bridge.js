/* Messages between an editor and the frame of its email: changes go in, what the user does in the frame comes out. */
(() => {
  "use strict";
  const stage = document.getElementById("stage"), canvas = document.getElementById("canvas");
  if (!canvas) return;
  const url = `/templates/${stage.dataset.t}`, note = stage.querySelector("[data-stage-note]");
  const shown = { as: stage.dataset.as || "", id: null, have: [], ready: false };
  let busy = false, again = false;
  const post = (message) => canvas.contentWindow.postMessage(message, "*");
  const emit = (name, detail = {}) => document.dispatchEvent(new CustomEvent(`canvas:${name}`, { detail }));
  const say = (text) => { note.hidden = !text; note.textContent = text; };
  const reload = () => { shown.ready = false; canvas.contentWindow.location.replace(`${url}/canvas?as=${shown.as}`); };

  // What it has goes along with what is saved, and the answer brings what changed.
  const mark = () => { stage.dataset.have = shown.ready && shown.have.length < 200 ? `${shown.as};${shown.have}` : ""; };
  const applyReply = (reply) => {
    if (reply.frame && (reply.rows || reply.frame[0] !== shown.have[0])) {
      post(reply);
      if (reply.rows) shown.have = [reply.frame[0], ...reply.rows.map(([name]) => name)], mark();
    }
    say(reply.error || "");
  };
  let brought = false;
  document.addEventListener("answer", ({ detail: { html } }) => {
    const at = html.indexOf('<data id="drawn"'), box = document.createElement("template");
    if (at < 0 || busy || !shown.ready) return;
    box.innerHTML = html.slice(at);
    const reply = JSON.parse(box.content.firstChild.value);
    if (reply.as !== shown.as || reply.rows?.some(([name, row]) => row === null && !shown.have.includes(name))) return;
    applyReply(reply);
    brought = true;
  });
  const follow = () => { if (!brought) sync(); brought = false; };

  // One question at a time, and once more if something happened meanwhile.
  const sync = async () => {
    if (!shown.ready) return;
    if (busy) { again = true; return; }
    busy = true;
    again = false;
    try {
      const answer = await fetch(`${url}/rows?as=${shown.as}&have=${shown.have}`, { headers: { accept: "application/json" } });
      const reply = answer.headers.get("content-type")?.includes("json") ? await answer.json() : {};
      applyReply(reply);
    } catch {
      setTimeout(sync, 3000);
    }
    busy = false;
    if (again) sync();
  };
  for (const name of ["section", "sections", "theme"]) document.addEventListener(name, follow);

  const handlers = {
    ready({ have }) { Object.assign(shown, { have, ready: true }); mark(); post({ id: shown.id, scroll: shown.asked ? "auto" : null }); shown.asked = false; emit("ready"); if (again) sync(); },
    shown({ have }) { shown.have = have; mark(); stage.dataset.shown = have.join(); },
    reload,
    outdated: () => sync(),
    select({ id }) { shown.id = id; emit("select", { id }); },
    edit({ id }) { shown.id = id; emit("edit", { id }); },
    move({ id, before, into }) { emit("move", { id, before, into }); },
    add({ kind, before, into, focus }) { emit("add", { kind, before, into, focus }); },
    act({ id, act }) { emit("act", { id, act }); },
    wrote({ id, text }) { emit("wrote", { id, text }); },
    left({ id, changed }) { emit("left", { id, changed }); },
    picture({ id, file, before, into }) { emit("picture", { id, file, before, into }); },
    step({ id, way }) { emit("step", { id, way }); },
    unwritable({ id }) { emit("unwritable", { id }); },
    key(keys) { canvas.dispatchEvent(new KeyboardEvent("keydown", { ...keys, bubbles: true, cancelable: true })); },
  };
  addEventListener("message", ({ source, data }) => {
    if (source === canvas.contentWindow && Object.hasOwn(handlers, data?.to)) handlers[data.to](data);
  });
  const postView = () => post({ view: stage.dataset.view, locked: "locked" in stage.dataset });
  const hello = () => { postView(); post({ to: "hello" }); };
  canvas.addEventListener("load", hello);
  hello();

  document.addEventListener("canvas:show", ({ detail: { id } }) => {
    shown.id = id;
    if (!shown.ready) shown.asked = true; // The frame hears nothing yet: it goes there as soon as it is ready.
    post({ id, scroll: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  });

  document.addEventListener("canvas:post", ({ detail }) => post(detail));

  // How it is looked at: two widths, two ways of being dark.
  // A window that is narrower than the email on a computer shows it as a phone does, and says so.
  const narrow = matchMedia("(max-width: 671px)");
  let isDesktop = stage.dataset.view === "desktop";
  const view = (wanted) => {
    isDesktop = wanted === "desktop";
    const name = isDesktop && narrow.matches ? "phone" : wanted;
    stage.dataset.view = name;
    const main = name === "forced" ? "dark" : name;
    for (const button of document.querySelectorAll("[data-view]:is(button)")) button.setAttribute("aria-pressed", button.dataset.view === (button.closest("[data-darks]") ? name : main));
    for (const element of document.querySelectorAll("[data-darks]")) element.hidden = main !== "dark";
    postView();
  };
  narrow.addEventListener("change", () => { if (isDesktop) view("desktop"); });
  if (narrow.matches && isDesktop) view("desktop");
  document.addEventListener("view", ({ detail }) => view(detail.view));
  // The canvas shows the original; what a contact with another language gets is on the page of the translation
  const languageNote = stage.querySelector("[data-as-note]");
  const previewAs = (id, words, hint = "", href = "") => {
    shown.as = id;
    languageNote.hidden = !hint;
    languageNote.firstChild.textContent = hint;
    languageNote.querySelector("a").href = href;
    mark();
    for (const element of document.querySelectorAll("[data-as-name]")) element.textContent = words;
    // A test shows whom the preview shows, unless its dialog says otherwise
    for (const choice of document.querySelectorAll("[data-test-as]")) {
      const [mine, nobody] = choice.parentElement.querySelectorAll("[name=as]");
      choice.hidden = mine.disabled = !id;
      mine.value = id;
      (id ? mine : nobody).checked = true;
    }
    sync();
  };
  // The search for a person starts anew each time; Enter takes the first match, as soon as it is here.
  const menu = document.getElementById("as-menu"), word = document.getElementById("as-search");
  let isWanted = false;
  const take = () => {
    const people = document.getElementById("as-people"), query = word.value.trim();
    if (!isWanted || !query || people.dataset.search !== query) return;
    isWanted = false;
    people.querySelector("button[data-as]")?.click();
  };
  // Before it opens: the event after that would come when the first letter has been typed already
  menu?.addEventListener("beforetoggle", ({ newState }) => {
    isWanted = false;
    word.value = "";
    if (newState !== "open") return;
    document.getElementById("as-people").replaceChildren();
    htmx.trigger(word, "opened");
  });
  word?.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    isWanted = true;
    take();
  });
  word?.addEventListener("input", () => { isWanted = false; });
  if (word) document.addEventListener("htmx:after:swap", take);
  document.addEventListener("canvas:as", ({ detail }) => previewAs(detail.id || "", detail.name || ""));
  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("button[data-view], button[data-as]");
    if (button?.dataset.view) view(button.dataset.view);
    else if (button) {
      button.closest("[popover]")?.hidePopover();
      previewAs(button.dataset.as, button.dataset.name, button.dataset.note, button.dataset.href);
    }
  });
})();
