// The MCP server `mcp-image`, which calls an image API with the official SDK. It names `gpt-image-2.5-flare`.

import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

import { absent, apiKey, baseURL, feature, picturePath, png, prompt, retryPrompt } from "./kit.mjs";

const folder = process.env.ZOO_FOLDER;
const environment = {
  ...process.env,
  IMAGE_PROVIDER: "openai",
  OPENAI_API_KEY: apiKey,
  OPENAI_BASE_URL: baseURL,
  IMAGE_OUTPUT_DIR: folder,
  SKIP_PROMPT_ENHANCEMENT: "true",
};
const transport = new StdioClientTransport({
  command: process.execPath,
  args: ["node_modules/mcp-image/dist/index.js"],
  env: environment,
  stderr: "ignore",
});
const client = new Client({ name: "zoo", version: "0" });
await client.connect(transport);

const generate = async (options) => {
  const result = await client.callTool({ name: "generate_image", arguments: options });
  const text = JSON.stringify(result);
  if (result.isError) {
    const error = JSON.parse(result.content[0].text).error;
    throw new Error(error.details?.upstreamMessage ?? error.message);
  }
  const path = text.match(/file:\/\/([^"\\]+\.png)/)?.[1];
  if (!path) throw new Error(`no file: ${text}`);
  return png(readFileSync(decodeURIComponent(path)));
};

await feature("generation", () => generate({ prompt, fileName: "first.png" }));
await feature("edit", () => generate({ prompt: "add a boat", inputImagePath: picturePath, fileName: "second.png" }));
absent("error", "the program checks its few options itself");
await feature("retry", () => generate({ prompt: retryPrompt, fileName: "third.png" }));
await client.close();
