// Calls the SDK in WebAssembly against a server of its own: node run.mjs BINDINGS
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const sdk = await import(pathToFileURL(process.argv[2]));

const image = readFileSync(new URL("../golden/lighthouse.jpg", import.meta.url));
const b64_json = image.toString("base64");

const received = [];
const json = (response, status, body) => {
  response.writeHead(status, { "content-type": "application/json", "x-request-id": "r-1" });
  response.end(JSON.stringify(body));
};
const answers = {
  "POST /v1/images/generations": (response, body) => {
    const request = JSON.parse(body);
    if (request.prompt === "refused") {
      return json(response, 400, { error: { message: "no", code: "invalid_request_error", type: "invalid_request_error", param: "prompt" } });
    }
    if (!request.stream) return json(response, 200, { created: 7, data: [{ b64_json }] });
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const partial_image_index of [0, 1]) {
      response.write(`data: ${JSON.stringify({ type: "image_generation.partial_image", partial_image_index, b64_json })}\n\n`);
    }
    response.end(`data: ${JSON.stringify({ type: "image_generation.completed", b64_json })}\n\n`);
  },
  "POST /v1/images/edits": (response, body) => {
    assert.ok(body.includes(image), "the form has the bytes of the image");
    json(response, 200, { created: 7, data: [{ b64_json }] });
  },
  "POST /v1/responses": (response) => {
    const content = [{ type: "output_text", text: "A fox." }];
    json(response, 200, { id: "resp_1", model: "gpt-5.5", status: "completed", output: [{ type: "message", content }] });
  },
  "GET /v1/models": (response) => json(response, 200, { object: "list", data: [{ id: "gpt-5.5" }, { id: "sketch-1" }] }),
};
const server = createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    received.push(request);
    answers[`${request.method} ${request.url}`](response, Buffer.concat(pieces));
  });
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const base = `http://127.0.0.1:${server.address().port}/v1`;

assert.ok(image.equals(await sdk.generate(base, "a fox")));
assert.ok(image.equals(await sdk.edit(base, image)));
const streamed = await sdk.stream(base);
assert.equal(streamed[0], 2, "intermediate images");
assert.ok(image.equals(streamed.subarray(1)));
assert.equal(await sdk.respond(base), "A fox.");
assert.equal(await sdk.models(base), "gpt-5.5 sketch-1");
await assert.rejects(sdk.generate(base, "refused"), (error) => /^Answer: no .*parameter prompt.*request r-1/.test(error));
await assert.rejects(sdk.generate(base, " "), (error) => /^Request: the prompt is empty/.test(error));
assert.equal(await sdk.count_attempts(base), 2, "requests through a transport");
assert.equal(received.length, 8, "a request that breaks a rule is not sent");
assert.ok(received.every((request) => request.headers.authorization === "Bearer sk-wasm"));
server.close();
console.log("ok: generate, edit, stream, respond, models, a transport and errors of the SDK in WebAssembly");
