// Requests that are refused before their body is read, as in early_answers.py, with the fetch of Node, its HTTP client,
// and the official client.

import http from "node:http";
import OpenAI from "openai";

const { CLIENT, COUNT, CASES } = process.env;
const agents = { shared: new http.Agent({ keepAlive: true }), fresh: new http.Agent({ keepAlive: false }) };

function jsonBody(size) {
  return size <= 12 ? '{"prompt":1}' : JSON.stringify({ model: "gpt-image-2", prompt: "x".repeat(size - 42) });
}

function form(size) {
  const data = new FormData();
  data.append("prompt", "a hat");
  data.append("image", new Blob([new Uint8Array(size)], { type: "image/png" }), "a.png");
  return data;
}

const senders = {
  async "node-fetch"(item, size, fresh) {
    const headers = { authorization: `Bearer ${item.key}` };
    if (fresh) headers.connection = "close";
    if (item.kind !== "form") headers["content-type"] = item.type;
    const body = item.kind === "form" ? form(size) : jsonBody(size);
    const answer = await fetch(item.url, { method: "POST", headers, body });
    return [answer.status, await answer.text()];
  },
  async "node-http"(item, size, fresh) {
    const body = item.kind === "form" ? Buffer.from(await new Response(form(size)).arrayBuffer()) : Buffer.from(jsonBody(size));
    const type = item.kind === "form" ? "multipart/form-data; boundary=x" : item.type;
    const headers = { authorization: `Bearer ${item.key}`, "content-type": type, "content-length": body.length };
    return new Promise((resolve, reject) => {
      const request = http.request(item.url, { method: "POST", headers, agent: fresh ? agents.fresh : agents.shared }, (answer) => {
        let text = "";
        answer.on("data", (data) => (text += data));
        answer.on("end", () => resolve([answer.statusCode, text]));
        answer.on("error", reject);
      });
      request.on("error", reject);
      request.end(body);
    });
  },
  async "openai-node"(item, size, fresh) {
    const make = () => new OpenAI({ apiKey: item.key, baseURL: "http://127.0.0.1:1/v1", maxRetries: 0 });
    const client = fresh ? make() : (this.shared ??= make());
    const headers = { authorization: `Bearer ${item.key}` };
    if (fresh) headers.connection = "close";
    if (item.kind !== "form") headers["content-type"] = item.type;
    const body = item.kind === "form" ? form(size) : JSON.parse(jsonBody(size));
    try {
      await client.post(item.url, { body, headers });
    } catch (error) {
      if (error.status === undefined) throw error;
      return [error.status, JSON.stringify({ error: error.error })];
    }
    return [200, "{}"];
  },
};

for (const item of JSON.parse(CASES)) {
  for (const size of item.sizes) {
    let seen = 0;
    const others = {};
    for (let repetition = 0; repetition < Number(COUNT); repetition += 1) {
      let status;
      try {
        const [code, text] = await senders[CLIENT](item, size, repetition % 2 === 0);
        if (JSON.parse(text).error === undefined) throw new Error(text.slice(0, 100));
        status = code;
      } catch (error) {
        status = `${error.name}: ${error.message} ${error.cause ?? ""}`.slice(0, 160);
      }
      if (status === item.status) seen += 1;
      else others[status] = (others[status] ?? 0) + 1;
    }
    console.log(JSON.stringify({ client: CLIENT, kind: item.kind, status: item.status, size, seen, count: Number(COUNT), others }));
  }
}
process.exit(0);
