// Imports contacts from a file and exports all contacts: node importAndExport.js URL KEY IN.csv
import { Campanero } from "../src/index.js";

declare const process: { argv: string[]; getBuiltinModule(name: "fs/promises"): { readFile(path: string): Promise<Uint8Array<ArrayBuffer>> } };

const [, , url = "", key = "", source = ""] = process.argv;
const client = new Campanero(url, key, { maxRetrySeconds: 300 });

const content = await process.getBuiltinModule("fs/promises").readFile(source);
let job = await client.imports.create({ name: source, content });
while (job.status === "pending" || job.status === "processing") {
  await new Promise((resolve) => setTimeout(resolve, 200));
  job = await client.imports.get(job.id);
}
console.log(job.created, "created,", job.updated, "updated,", job.failed, "failed");

for await (const line of client.exports.contactsCsv().lines()) console.log(line.split(",").length, "columns");
console.log((await client.contacts.list().page()).total, "contacts");
