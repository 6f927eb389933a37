/* Uploads a logo as soon as its file is chosen, and shows that it is being uploaded. */
(() => {
  "use strict";
  document.addEventListener("change", ({ target }) => {
    const form = target.files?.length && target.closest("form[data-upload]");
    // The upload loads the page again, which would lose changes in its other form: then the button uploads the file.
    if (!form || document.querySelector("form.changed")) return;
    const status = form.querySelector("[role=status]");
    status.textContent = t("Uploading %(name)s…", { name: target.files[0].name });
    status.before(document.createElement("progress"));
    form.requestSubmit();
  });
})();
