// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Sign-up forms. */
export class Forms {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List forms, newest first.
   *
   * Scope: `contacts:read`.
   */
  list(query: types.ListFormsQuery = {}): Paginator<types.Form> {
    return new Paginator<types.Form>(this.#transport, "/v1/my/forms", query);
  }

  /**
   * Create a form.
   *
   * Scope: `contacts:write`.
   */
  create(body: types.FormWrite, options: RequestOptions = {}): Promise<types.Form> {
    return this.#transport.call("POST", "/v1/my/forms", { body, ...options });
  }

  /**
   * Get a form.
   *
   * Scope: `contacts:read`.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.Form> {
    return this.#transport.call("GET", `/v1/my/forms/${segment(id)}`, { ...options });
  }

  /**
   * Update a form.
   *
   * Scope: `contacts:write`.
   */
  update(id: number, body: types.FormPatch = {}, options: RequestOptions = {}): Promise<types.Form> {
    return this.#transport.call("PATCH", `/v1/my/forms/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete a form; contacts who signed up through it are kept.
   *
   * Scope: `contacts:write`.
   */
  delete(id: number, options: RequestOptions = {}): Promise<types.Form> {
    return this.#transport.call("DELETE", `/v1/my/forms/${segment(id)}`, { ...options });
  }

  /**
   * Submit a form.
   *
   * No credential is required. The response does not depend on whether the address is known. `website` must be
   * empty. Pages of the form's `origins` may read the response.
   */
  submit(publicKey: string, body: types.SubmitFormBody = {}, options: RequestOptions = {}): Promise<types.SubmitFormResult> {
    return this.#transport.call("POST", `/v1/public/forms/${segment(publicKey)}`, { body, ...options });
  }
}
