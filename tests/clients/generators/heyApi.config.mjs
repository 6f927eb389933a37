// Node needs the extension in imports; the test names the document and the directory
export default {
  input: process.env.OPENAPI_DOCUMENT,
  output: { path: process.env.GENERATED, module: { extension: ".js" } },
  plugins: ["@hey-api/typescript", "@hey-api/sdk", "@hey-api/client-fetch"],
};
