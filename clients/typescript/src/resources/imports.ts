// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Download, Paginator, segment, type FileContent, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Imports of contacts and suppressions from files. */
export class Imports {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List imports, newest first.
   *
   * Scope: `contacts:read`.
   */
  list(query: types.ListImportsQuery = {}): Paginator<types.Import> {
    return new Paginator<types.Import>(this.#transport, "/v1/my/imports", query);
  }

  /**
   * Import a file of contacts or suppressions (CSV or JSON lines); `dry_run` only reports the effects.
   *
   * Scope: `contacts:write`.
   */
  create(file: FileContent, fields: types.ImportForm = {}, query: types.CreateImportQuery = {}, options: RequestOptions = {}): Promise<types.Import> {
    return this.#transport.call("POST", "/v1/my/imports", { form: { file, fields }, query, ...options });
  }

  /**
   * Get an import with its progress.
   *
   * Scope: `contacts:read`.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.Import> {
    return this.#transport.call("GET", `/v1/my/imports/${segment(id)}`, { ...options });
  }

  /**
   * Get the result of each line of the file with its reason.
   *
   * Results are kept for 7 days. While the file is still being read, the response is 409. Scope: `contacts:read`.
   */
  exportResultsCsv(id: number): Download {
    return new Download(this.#transport, `/v1/my/imports/${segment(id)}/results.csv`, {});
  }

  /**
   * Cancel an import; imported rows stay until the import is undone.
   *
   * Scope: `contacts:write`.
   */
  cancel(id: number, options: RequestOptions = {}): Promise<types.Import> {
    return this.#transport.call("POST", `/v1/my/imports/${segment(id)}/cancel`, { ...options });
  }

  /**
   * Undo an import within 24 hours; rows that have been changed since then are kept.
   *
   * Scope: `contacts:write`.
   */
  undo(id: number, options: RequestOptions = {}): Promise<types.Import> {
    return this.#transport.call("POST", `/v1/my/imports/${segment(id)}/undo`, { ...options });
  }
}
