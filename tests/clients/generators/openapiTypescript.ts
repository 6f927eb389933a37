// The journey with the types of openapi-typescript and a fetch of fifteen lines: node openapiTypescript.js URL KEY
import type { components, paths } from "./generated/paths.js";

declare const process: { argv: string[] };

const [, , url = "", key = ""] = process.argv;

type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : never;
type Method = "get" | "post";
type Body<P extends keyof paths, M extends Method> = paths[P][M] extends { requestBody?: infer R } ? Json<NonNullable<R>> : undefined;
type Result<P extends keyof paths, M extends Method> = paths[P][M] extends { responses: infer R } ? Json<R[keyof R & (200 | 201)]> : never;

async function call<P extends keyof paths, M extends Method>(
  method: M,
  path: P,
  body?: Body<P, M>,
  values: Record<string, number> = {},
): Promise<Result<P, M>> {
  const query = path.includes("{") ? "" : `?${new URLSearchParams(Object.entries(values).map(([name, value]) => [name, String(value)]))}`;
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name]));
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  const response = await fetch(url + filled + query, { method: method.toUpperCase(), headers, body: body === undefined ? null : JSON.stringify(body) });
  if (!response.ok) throw new Error(((await response.json()) as components["schemas"]["ErrorResponse"]).message);
  return (await response.json()) as Result<P, M>;
}

const news = await call("post", "/v1/my/lists", { name: "By openapi-typescript", double_opt_in: false, public: false });
await call("post", "/v1/my/contacts", { email: "ben@example.org", list_ids: [news.id], data: { city: "Bonn", visits: 3 } });
const segment = await call("post", "/v1/my/segments", {
  name: "From Bonn",
  filters: [{ name: "data.city", predicate: "eq", value: "Bonn" }],
});
const campaign = await call("post", "/v1/my/campaigns", { name: "Letter", channel: "email", tracking: true });
const values = { id: campaign.id };
await call("post", "/v1/my/campaigns/{id}/send", {
  trigger_attributes: { contact_list_id: news.id, segment_id: segment.id },
  template_attributes: { subject: "Hello", body: "<p>Good morning.</p>" },
  confirm_send_to_all: false,
  hold_seconds: 0,
}, values);
while ((await call("get", "/v1/my/campaigns/{id}", undefined, values)).status === "active") {
  await new Promise((resolve) => setTimeout(resolve, 100));
}
const messages = await call("get", "/v1/my/messages", undefined, { campaign_id: campaign.id });
const contacts = await call("get", "/v1/my/contacts", undefined, { list_id: news.id });
console.log(contacts.length, messages.map((message) => `${message.to} ${message.status}`).join());
