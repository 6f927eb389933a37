/* Passkeys: create one on the profile, and use one on the sign-in form, also from the suggestions of its first field. */
(() => {
  "use strict";
  if (!window.PublicKeyCredential) return;
  const toBytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
  const toText = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const withBytes = (entry) => ({ ...entry, id: toBytes(entry.id) });
  const decode = (options) => {
    const publicKey = { ...options, challenge: toBytes(options.challenge) };
    if (options.user) publicKey.user = withBytes(options.user);
    for (const name of ["allowCredentials", "excludeCredentials"]) if (options[name]) publicKey[name] = options[name].map(withBytes);
    return publicKey;
  };
  // Not `toJSON()` of the browser: some password managers return objects that it rejects.
  const encode = ({ id, rawId, type, response }) => {
    const fields = { transports: response.getTransports?.() };
    for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (response[name]) fields[name] = toText(response[name]);
    }
    return JSON.stringify({ id, rawId: toText(rawId), type, response: fields });
  };
  const REASONS = {
    NotAllowedError: t("The passkey was not used: the prompt was closed, or it took too long. Try again."),
    InvalidStateError: t("This device has a passkey for Campanero already."),
    SecurityError: t("Passkeys do not work at this address."),
  };
  const show = (box, text) => {
    const error = box.querySelector("[data-passkey-error]");
    error.textContent = text;
    error.hidden = !text;
  };
  const send = (form, credential) => {
    form.elements.credential.value = encode(credential);
    form.requestSubmit();
  };

  // One request at a time: a browser refuses a second one, also while it only suggests.
  let pending = null, timer = 0, isChosen = false; // whether the pending one was asked for by the button
  const begin = () => {
    pending?.abort();
    clearTimeout(timer);
    pending = new AbortController();
    return pending.signal;
  };
  const ask = async (box, mediation) => {
    const form = box.closest("form"), signal = begin();
    const body = new URLSearchParams({ pass: form.elements.pass?.value || "" });
    const response = await fetch(box.dataset.passkey, { method: "POST", body, signal });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const credential = await navigator.credentials.get({ publicKey: decode(await response.json()), mediation, signal });
    if (credential && form.isConnected) send(form, credential);
  };
  const SUGGEST_AGAIN_MS = 8 * 60 * 1000; // before the challenge expires
  const suggest = async () => {
    const box = document.querySelector("form:has([autocomplete~=webauthn]) [data-passkey]:not([hidden])");
    if (!box || !(await PublicKeyCredential.isConditionalMediationAvailable?.()) || isChosen) return;
    const waiting = ask(box, "conditional");
    timer = setTimeout(suggest, SUGGEST_AGAIN_MS);
    // Without suggestions the button and the password are there.
    await waiting.catch(() => {});
  };
  const use = async (button) => {
    const box = button.closest("[data-passkey]");
    show(box, "");
    isChosen = true;
    try {
      await ask(box, "optional");
    } catch (error) {
      if (error.name === "AbortError") return; // the button was pressed again
      show(box, REASONS[error.name] || t("This browser could not use the passkey. Sign in another way."));
      isChosen = false;
      suggest();
    }
  };
  const create = async (button) => {
    const form = button.closest("form");
    show(form, "");
    try {
      send(form, await navigator.credentials.create({ publicKey: decode(JSON.parse(form.dataset.passkeyOptions)), signal: begin() }));
    } catch (error) {
      show(form, REASONS[error.name] || t("This browser could not create a passkey."));
    }
  };
  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("[data-passkey-use], [data-passkey-create]");
    if (button) button.hasAttribute("data-passkey-use") ? use(button) : create(button);
  });

  // A passkey belongs to one address, and works nowhere else.
  const reveal = () => {
    let isNew = false;
    for (const element of document.querySelectorAll("[data-passkey-origin]")) {
      if (element.dataset.passkeyOrigin !== location.origin || !element.hidden) continue;
      element.hidden = false;
      isNew = true;
      document.querySelector("[data-no-passkeys]")?.remove();
    }
    if (!isNew) return;
    isChosen = false;
    suggest();
  };
  document.addEventListener("htmx:after:swap", reveal);
  reveal();
})();
