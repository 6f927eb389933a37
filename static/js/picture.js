/* Images in a form: a field with a thumbnail, and the drawer to select, drop or paste an image. */
(() => {
  "use strict";
  const LARGE = 1600, HEAVY = 1048576;
  const $ = (selector, root = document) => root.querySelector(selector);
  const drawer = () => $("#pictures");
  let into, alt, waiting;

  const set = (field, value) => {
    field.value = value;
    // A field of merge tags shows its words in an element of its own.
    field.closest("merge-field")?.show(value);
    for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
  };
  // Only ours are shown small: pages load nothing from elsewhere.
  const show = (box) => {
    const image = $("img", box), own = /\/m\/\w+$/.exec($("input", box).value), size = $("[data-size]", box);
    image.hidden = !own;
    size.textContent = "";
    if (!own) return;
    image.onload = () => { size.textContent = `${image.naturalWidth} × ${image.naturalHeight}`; };
    image.onerror = () => { image.hidden = true; size.textContent = t("Image not found."); };
    if (image.getAttribute("src") !== own[0]) image.src = own[0]; else if (image.complete) image.onload();
  };
  const all = (root) => { for (const box of root.querySelectorAll?.("[data-picfield]") || []) show(box); };

  const say = (text) => { $("[data-state]", drawer()).textContent = text; };
  const open = (field, alternative) => {
    [into, alt] = [field, alternative];
    $("#media-one").replaceChildren();
    typed = false;
    say("");
    if (!drawer().open) drawer().showModal();
    htmx.trigger($("#media"), "wanted");
  };
  const send = async (file, keep) => {
    const form = new FormData(), preview = $("#media-one");
    form.append("full_size", keep);
    form.append("file", file, file.name || "pasted.png");
    $("[data-large]", drawer()).hidden = true;
    say(file.name ? t("Uploading %(name)s…", { name: file.name }) : t("Uploading image…"));
    try {
      const answer = await fetch("/templates/media", { method: "POST", body: form, headers: { "hx-request": "true", "hx-target": "div#media-one", "x-account": document.body.dataset.account || "" } });
      const uploaded = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("media-one");
      preview.replaceChildren(...(uploaded?.childNodes || []));
      say(uploaded ? "" : t("Upload failed. Try again."));
      if (answer.ok) htmx.trigger($("#media"), "wanted");
      $("#media-alt")?.focus();
    } catch {
      say(t("No response from the server. Try again."));
    }
  };
  // A large one is asked about before it is sent.
  const take = async (file) => {
    if (!file) return;
    if (!/^image\//.test(file.type)) { say(t("%(name)s is not an image.", { name: file.name })); return; }
    const size = await createImageBitmap(file).then((map) => [map.width, map.height], () => [0, 0]);
    const box = $("[data-large]", drawer());
    if (/svg|gif/.test(file.type) || (size[0] <= LARGE && file.size <= HEAVY)) { send(file, ""); return; }
    waiting = file;
    $("[data-words]", box).textContent = t("This image is %(width)s × %(height)s pixels, %(size)s MB. Emails need at most 1440 pixels in width.", { width: size[0], height: size[1], size: (file.size / HEAVY).toFixed(1) });
    box.hidden = false;
    $("button", box).focus();
  };
  const fileOf = (data) => [...(data?.files || [])].find((file) => file.type.startsWith("image/"));

  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("[data-choose], [data-use], [data-keep]");
    if (!button) return;
    const { choose, keep, use } = button.dataset;
    if (choose) open(document.getElementById(choose), document.getElementById(button.dataset.alt));
    else if (use) {
      const words = $("#media-alt").value.trim();
      set(into, use);
      if (alt && words) set(alt, words);
      drawer().close();
      into.focus();
    } else send(waiting, keep);
  });
  // Enter in the words takes the picture, as its button does; so does a click beside the drawer once words were typed.
  let typed = false;
  const useChosen = (event) => {
    const button = $("[data-use]", drawer());
    if (button) event.preventDefault(), event.stopImmediatePropagation(), button.click();
  };
  document.addEventListener("input", ({ target }) => { if (target.id === "media-alt") typed = true; });
  document.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing && event.target.id === "media-alt") useChosen(event); });
  document.addEventListener("click", (event) => { if (typed && event.target === drawer() && drawer().open) useChosen(event); }, true);
  document.addEventListener("change", ({ target }) => { if (target.id === "pictures-file") { take(target.files[0]); target.value = ""; } });
  document.addEventListener("input", ({ target }) => { const box = target.closest?.("[data-picfield]"); if (box) show(box); });
  const spot = (target) => target.closest?.("[data-filedrop], [data-picfield]");
  for (const name of ["dragover", "dragleave", "drop"]) document.addEventListener(name, (event) => {
    const box = spot(event.target);
    if (!box || !event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    box.classList.toggle("ready", name === "dragover");
    if (name !== "drop") return;
    const button = $("[data-choose]", box);
    if (button) button.click();
    take(event.dataTransfer.files[0]);
  });
  document.addEventListener("picture", ({ target, detail: file }) => {
    $("[data-choose]", target).click();
    if (file) take(file);
  });
  document.addEventListener("paste", (event) => {
    const file = fileOf(event.clipboardData), box = spot(event.target);
    if (!file || !(drawer()?.open || box)) return;
    event.preventDefault();
    if (!drawer().open) $("[data-choose]", box).click();
    take(file);
  });
  // The words that the field has already come along.
  document.addEventListener("htmx:after:swap", () => { const field = $("#media-alt"); if (field && alt && !field.value) field.value = alt.value; });
  new MutationObserver((changes) => { for (const { addedNodes } of changes) addedNodes.forEach(all); }).observe(document.body, { childList: true, subtree: true });
  all(document);
})();
