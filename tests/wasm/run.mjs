// Runs the feature `manifest` in WebAssembly: node run.mjs IMAGATE_WASM ROOT
// Its output there must be, byte for byte, its output on the machine of whoever wrote the golden files and the
// packages.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join, relative, sep } from "node:path";

const [, , program, root] = process.argv;
const module = new WebAssembly.Module(readFileSync(program));
const { exports } = new WebAssembly.Instance(module, host(module));

// All that it may ask of its host is random numbers, which `jsonschema` seeds its tables with. Around these
// wasm-bindgen asks for functions of its own, which its command replaces and which nothing here calls.
function host(module) {
  const given = {};
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    assert.ok(kind === "function" && /^__wbindgen_(placeholder|externref_xform)__$/.test(from), `it asks for ${from}`);
    assert.match(name, /^(__wbg_)?__wbindgen_|^__wbg_getRandomValues_/, "it asks for more than random numbers");
    const random = (at, length) => void crypto.getRandomValues(new Uint8Array(exports.memory.buffer, at, length));
    const unexpected = () => assert.fail(`${name} was called`);
    (given[from] ??= {})[name] = name.startsWith("__wbg_getRandomValues_") ? random : unexpected;
  }
  return given;
}

const tree = (folder) =>
  Object.fromEntries(
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
      .map((path) => [relative(folder, path).split(sep).join("/"), [...readFileSync(path)]]),
  );

function give(files) {
  const text = new TextEncoder().encode(JSON.stringify(files));
  const at = exports.input(text.length);
  new Uint8Array(exports.memory.buffer, at, text.length).set(text);
}

// The memory may have grown, and so be another one, since the call began.
const said = (length) => Buffer.from(new Uint8Array(exports.memory.buffer, exports.output(), length));

const skills = join(root, "tests", "skills");
give(tree(join(skills, "corpus")));
const formats = ["human", "json", "github", "junit", "sarif"];
assert.equal(formats.length, readdirSync(join(skills, "golden")).length, "each golden file has its format here");
for (const [index, format] of formats.entries()) {
  const golden = readFileSync(join(skills, "golden", `${format}.txt`));
  const printed = said(exports.corpus(index));
  assert.ok(printed.equals(golden), `${format}: it differs from tests/skills/golden/${format}.txt`);
  console.log(`${format}: ${printed.length} bytes, as in the golden file`);
}

const own = tree(join(root, "schemas", "skills"));
const packages = Object.keys(own).filter((path) => path.endsWith(".zip")).sort();
assert.ok(packages.length > 0);
give(own);
assert.equal(exports.errors(), 0, "the packages of this repository are sound");
const index = JSON.parse(said(exports.index()));
assert.equal(index.skills.length, packages.length);
give({ ...own, [packages[0]]: own[packages[0]].with(-1, 1) });
assert.ok(exports.errors() > 0, "a changed byte is found");

const document = Buffer.from(own["skills.json"]);
const manifest = JSON.parse(document);
const seconds = (time) => BigInt(Date.parse(time) / 1000);
// The time of the first file of an archive, which all its files have, as Unix time: packages are of different times.
function timeOf(archive) {
  const [time, date] = [archive.readUInt16LE(10), archive.readUInt16LE(12)];
  const day = [(date >> 9) + 1980, ((date >> 5) & 15) - 1, date & 31];
  return BigInt(Date.UTC(...day, time >> 11, (time >> 5) & 63, (time & 31) * 2) / 1000);
}
give(Object.fromEntries(Object.entries(own).filter(([path]) => !path.startsWith("packages/"))));
for (const [place, path] of packages.entries()) {
  const file = Buffer.from(own[path]);
  assert.ok(said(exports.package(place, timeOf(file))).equals(file), `${path}: other bytes`);
  console.log(`${path}: built again, the same bytes`);
}
give(own);
const time = seconds(manifest.generated_at);
assert.ok(said(exports.manifest(time)).equals(document), "skills.json: other bytes");
console.log("skills.json: built again, the same bytes");
