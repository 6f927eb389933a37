/* First run: the length of a new password while it is typed, and the time zone of the browser. */
(() => {
  "use strict";
  const ENOUGH = 10, PLENTY = 20;
  document.addEventListener("input", (event) => {
    const field = event.target;
    if (!field.matches("[autocomplete=new-password]")) return;
    let bar = field.parentNode.querySelector("progress");
    if (!bar) {
      bar = Object.assign(document.createElement("progress"), { max: PLENTY });
      bar.setAttribute("aria-hidden", "true"); // the help beside it says the same
      field.after(bar);
    }
    bar.value = Math.min(field.value.length, PLENTY);
    bar.classList.toggle("is-paused", field.value.length < ENOUGH);
  });

  const zone = document.querySelector("[data-guess] select");
  const zoneName = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const same = [...(zone?.options || [])].find((option) => option.value === zoneName) || [...(zone?.options || [])].find((option) => option.dataset.words?.split(" ").includes(zoneName));
  if (!same) return;
  zone.value = same.value;
  zone.dispatchEvent(new Event("change", { bubbles: true }));
})();
