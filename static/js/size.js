/* The size of an email as it is sent, requested when nobody types and nothing is being saved. */
(() => {
  "use strict";
  const { editor } = window, size = document.getElementById("size");
  if (!editor || !size) return;
  let timer;
  const update = async () => {
    if (document.hidden || editor.waiting || editor.typing()) return soon();
    try {
      const answer = await fetch(`${editor.url}/size`, { headers: { "HX-Request": "true" }, priority: "low" });
      if (answer.ok && !answer.redirected) size.innerHTML = await answer.text();
    } catch { /* It stands as it was until the next edit. */ }
  };
  const soon = () => { clearTimeout(timer); timer = setTimeout(update, 1500); };
  for (const name of ["section", "sections", "theme"]) document.addEventListener(name, soon);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !size.firstChild) soon(); });
  soon();
})();
