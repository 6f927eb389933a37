// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { type FileContent, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Images for designs and the brand. */
export class Uploads {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Upload an image (PNG, JPEG, GIF or WebP) for a logo or an email.
   *
   * Scope: `templates:write`. Open to agents.
   */
  create(file: FileContent, fields: types.UploadForm = {}, options: RequestOptions = {}): Promise<types.Upload> {
    return this.#transport.call("POST", "/v1/my/uploads", { form: { file, fields }, ...options });
  }
}
