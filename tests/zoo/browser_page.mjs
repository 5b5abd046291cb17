// A page of another origin in Chromium, which calls the gateway with `fetch`.

import { execSync } from "node:child_process";
import { createServer } from "node:http";
import { chromium } from "playwright-core";

import { apiKey, baseURL, decoded, error, feature, picture, prompt, retryPrompt, wrongSize } from "./kit.mjs";

const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<!doctype html><title>page</title>"));
await new Promise((resolve) => server.listen(Number(process.env.ZOO_PAGE_PORT), "127.0.0.1", resolve));
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? execSync("command -v chromium", { encoding: "utf8" }).trim(),
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--no-proxy-server", "--disable-background-networking"],
});
const page = await browser.newPage();
await page.goto(`http://127.0.0.1:${server.address().port}/`);

/** What the page gets: the text of the answer, or what the browser tells the page about a refused call. */
async function call(path, body, form) {
  const { failure, text, ok } = await page.evaluate(
    async ({ address, key, body, form }) => {
      const headers = { Authorization: `Bearer ${key}` };
      let sent = body;
      if (form) {
        sent = new FormData();
        for (const [name, value] of Object.entries(form.fields)) sent.append(name, value);
        const bytes = Uint8Array.from(atob(form.image), (letter) => letter.charCodeAt(0));
        sent.append("image", new Blob([bytes], { type: "image/png" }), "picture.png");
      } else {
        headers["Content-Type"] = "application/json";
      }
      try {
        const answer = await fetch(address, { method: "POST", headers, body: sent });
        return { ok: answer.ok, text: await answer.text() };
      } catch (error) {
        return { failure: `${error.name}: ${error.message}` };
      }
    },
    { address: `${baseURL}${path}`, key: apiKey, body: body && JSON.stringify(body), form },
  );
  if (failure) throw new Error(failure);
  if (!ok) throw new Error(text);
  return JSON.parse(text).data[0].b64_json;
}

const model = "gpt-image-2";
const generate = async (size, text = prompt) =>
  decoded(await call("/images/generations", { model, prompt: text, size }), size);

await feature("generation", () => generate("1536x1024"));
await feature("edit", async () => {
  const fields = { model, prompt: "add a boat", size: "1024x1024" };
  return decoded(await call("/images/edits", null, { fields, image: picture.toString("base64") }), "1024x1024");
});
await error(["size"], () => generate(wrongSize));
await feature("retry", () => generate("1024x1024", retryPrompt));
await browser.close();
server.close();
