// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Content of messages: subject, body and design; previews and test sends. */
export class Templates {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List templates, newest first.
   *
   * Scope: `templates:read`. Open to agents.
   */
  list(query: types.ListTemplatesQuery = {}): Paginator<types.Template> {
    return new Paginator<types.Template>(this.#transport, "/v1/my/templates", query);
  }

  /**
   * Create a template.
   *
   * Scope: `templates:write`. Open to agents.
   */
  create(body: types.TemplateCreate = {}, options: RequestOptions = {}): Promise<types.Template> {
    return this.#transport.call("POST", "/v1/my/templates", { body, ...options });
  }

  /**
   * Get the section types with their properties and defaults, and predefined designs.
   *
   * Scope: `templates:read`. Open to agents.
   */
  describeDesigns(options: RequestOptions = {}): Promise<types.TemplateSpec> {
    return this.#transport.call("GET", "/v1/my/templates/spec", { ...options });
  }

  /**
   * Get a template.
   *
   * Scope: `templates:read`. Open to agents.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.Template> {
    return this.#transport.call("GET", `/v1/my/templates/${segment(id)}`, { ...options });
  }

  /**
   * Update a template.
   *
   * Scope: `templates:write`. Open to agents.
   */
  update(id: number, body: types.TemplateWrite = {}, options: RequestOptions = {}): Promise<types.Template> {
    return this.#transport.call("PATCH", `/v1/my/templates/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete a standalone template.
   *
   * Scope: `templates:write`.
   */
  delete(id: number, options: RequestOptions = {}): Promise<types.Template> {
    return this.#transport.call("DELETE", `/v1/my/templates/${segment(id)}`, { ...options });
  }

  /**
   * Render an email design to HTML for a contact or with sample values.
   *
   * A contact (`contact_id`) requires `contacts:read` too. Scope: `templates:read`. Open to agents.
   */
  previewDesign(body: types.PreviewRequest, options: RequestOptions = {}): Promise<types.Preview> {
    return this.#transport.call("POST", "/v1/my/templates/preview", { body, ...options });
  }

  /**
   * Send a test email of a template.
   *
   * An agent sends tests only to users of the account. A contact (`contact_id`) requires `contacts:read` too;
   * without that scope, every test shows sample values. Scope: `templates:write`. Open to agents.
   */
  sendTest(id: number, body: types.TestRequest = {}, options: RequestOptions = {}): Promise<types.TestSendResult> {
    return this.#transport.call("POST", `/v1/my/templates/${segment(id)}/send_test`, { body, ...options });
  }

  /**
   * List the languages that a template is translated into.
   *
   * Scope: `templates:read`. Open to agents.
   */
  listTranslations(id: number, query: types.ListTemplateTranslationsQuery = {}): Paginator<types.TranslationCounts> {
    return new Paginator<types.TranslationCounts>(this.#transport, `/v1/my/templates/${segment(id)}/translations`, query);
  }

  /**
   * Get the translation of a template into a language.
   *
   * Scope: `templates:read`. Open to agents.
   */
  getTranslation(id: number, language: string, options: RequestOptions = {}): Promise<types.TemplateTranslation> {
    return this.#transport.call("GET", `/v1/my/templates/${segment(id)}/translations/${segment(language)}`, { ...options });
  }

  /**
   * Translate texts of a template into a language.
   *
   * The first translation adds the language. Contacts get the template in their language (`language` of the
   * contact), in another region's (`de` for `de-AT`), or else in the original. With `updated_at` as last read, a
   * template that was changed since is left unchanged, and the response is 409. Scope: `templates:write`. Open to
   * agents.
   */
  putTranslation(id: number, language: string, body: types.TranslationWrite, options: RequestOptions = {}): Promise<types.TemplateTranslation> {
    return this.#transport.call("PUT", `/v1/my/templates/${segment(id)}/translations/${segment(language)}`, { body, ...options });
  }

  /**
   * Delete the translation of a template into a language, and return it.
   *
   * Scope: `templates:write`. Open to agents.
   */
  deleteTranslation(id: number, language: string, options: RequestOptions = {}): Promise<types.TemplateTranslation> {
    return this.#transport.call("DELETE", `/v1/my/templates/${segment(id)}/translations/${segment(language)}`, { ...options });
  }
}
