export { Campanero } from "./client.js";
export * from "./errors.js";
export { Download, Page, Paginator } from "./transport.js";
export type { FileContent, Query, RequestOptions, TransportOptions } from "./transport.js";
export type * as types from "./types.js";
export { VERSION } from "./version.js";
export * as webhooks from "./webhooks.js";
