// A real browser at the end of two pipes: each line that comes in is one thing to do, and each line that goes out says
// what came of it and everything that went wrong meanwhile. What several tests ask for is done at the same time; the
// number of the order is also in its answer.
//
// It knows no page of imagate. The steps and their expected results stand in `tests/it/pages`.

import { rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

import { watch } from "./faults.mjs";

/** How long anything on a page may take; only a fault takes this long. */
const PATIENCE = 20_000;

/** Nothing but this machine has a name, and nothing is asked for that no page asks for. */
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-proxy-server",
  "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ARGUMENTS, timeout: 60_000 });
const tabs = new Map();

/** A window of somebody: cookies of its own, one page, and what went wrong on it. */
async function open({ tab, origins, javascript, theme, width, height, locale }) {
  const context = await browser.newContext({
    javaScriptEnabled: javascript,
    colorScheme: theme,
    viewport: { width, height },
    locale,
    reducedMotion: "reduce",
    permissions: ["clipboard-read", "clipboard-write"],
  });
  context.setDefaultTimeout(PATIENCE);
  const faults = await watch(context, origins);
  const page = await context.newPage();
  const documents = [];
  page.on("response", (response) => {
    if (response.request().isNavigationRequest() && response.frame() === page.mainFrame()) documents.push(response);
  });
  tabs.set(tab, { context, page, faults, documents });
  return null;
}

/** Does what leads to another document, and tells of that document. */
async function travel({ page, documents }, work) {
  documents.length = 0;
  const arrived = page.waitForEvent("framenavigated", { predicate: (frame) => frame === page.mainFrame() });
  const [, done] = await Promise.allSettled([arrived, work()]);
  if (done.status === "rejected") throw done.reason;
  await arrived;
  await page.waitForLoadState("load");
  return { status: documents.at(-1)?.status() ?? 0, url: page.url(), html: await page.content() };
}

/** The one thing with this role and this whole name, of those that can be seen. */
function named({ page }, { role, name }) {
  return page.getByRole(role, { name, exact: true }).filter({ visible: true });
}

const field = ({ page }, { label }) => page.getByLabel(label, { exact: true }).filter({ visible: true });

/** What stands wider than the window, and by which element. */
function overflow() {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const scrolls = (element) => {
    for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) {
      if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(at).overflowX)) return true;
    }
    return false;
  };
  const wide = [...document.body.querySelectorAll("*")].filter(
    (element) => element.getBoundingClientRect().right > width + 0.5 && !scrolls(element),
  );
  return [`the document is ${document.documentElement.scrollWidth} of ${width} pixels wide`].concat(
    wide.slice(-5).map((element) => element.outerHTML.slice(0, 160)),
  );
}

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** What axe-core finds on the page as it is; with these rules only, unless the list is empty. */
async function inspect({ page }, rules) {
  const { readFile } = await import("node:fs/promises");
  // It is still there where only the window has another size or theme.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(await readFile(axe, "utf8"));
  const { violations } = await page.evaluate((rules) => {
    const runOnly = rules.length > 0 ? { runOnly: { type: "rule", values: rules } } : {};
    return globalThis.axe.run(document, { resultTypes: ["violations"], ...runOnly });
  }, rules);
  return violations.map(({ id, impact, help, nodes }) => ({
    id,
    impact,
    help,
    nodes: nodes.slice(0, 5).map((node) => `${node.target.join(" ")}: ${node.failureSummary} ${node.html.slice(0, 200)}`),
  }));
}

/** Role and name of whatever has the focus, as a reader of the screen is told. */
async function focused({ page }) {
  const element = await page.evaluateHandle(() => document.activeElement);
  const { role, name, value } = await element.evaluate((active) => ({
    role: active.getAttribute("role") ?? active.localName,
    name: active.labels?.[0]?.innerText ?? active.getAttribute("aria-label") ?? active.innerText ?? "",
    value: active.value ?? "",
  }));
  return { role, name: name.replace(/\s+/g, " ").trim(), value };
}

/** Whether the focus can be seen: something is drawn around it that is not drawn without it. */
function ring() {
  const active = document.activeElement;
  const look = () => {
    const style = getComputedStyle(active);
    return [style.outlineStyle, style.outlineWidth, style.boxShadow, style.borderColor, style.backgroundColor].join();
  };
  const [before, top] = [look(), [scrollX, scrollY]];
  active.blur();
  const after = look();
  active.focus({ preventScroll: true });
  scrollTo(...top);
  return before !== after;
}

const deeds = {
  go: (tab, { url }) => travel(tab, () => tab.page.goto(url, { waitUntil: "load" })),
  reload: (tab) => travel(tab, () => tab.page.reload()),
  follow: (tab, what) => travel(tab, () => named(tab, what).click()),
  follow_to: (tab, { path }) => travel(tab, () => tab.page.locator(`a[href="${path}"]`).filter({ visible: true }).first().click()),
  key_leads: (tab, { key }) => travel(tab, () => tab.page.keyboard.press(key)),
  key: (tab, { key }) => tab.page.keyboard.press(key),
  type: (tab, { text }) => tab.page.keyboard.type(text),
  click: (tab, what) => named(tab, what).click(),
  count: (tab, what) => named(tab, what).count(),
  fill: (tab, what) => field(tab, what).fill(what.value),
  inner: (tab, { selector }) => tab.page.locator(selector).filter({ visible: true }).allInnerTexts(),
  text: (tab) => tab.page.locator("body").innerText(),
  unfold: (tab, { text }) => tab.page.locator("summary").filter({ hasText: text, visible: true }).click(),
  clipboard: (tab) => tab.page.evaluate(() => navigator.clipboard.readText()),
  cookies: (tab) => tab.context.cookies(),
  give_cookie: (tab, { cookie }) => tab.context.addCookies([cookie]),
  evaluate: (tab, { code }) => tab.page.evaluate(code),
  frames: async (tab) =>
    Promise.all(
      tab.page.frames().slice(1).map(async (frame) => ({ url: frame.url(), text: await frame.locator("html").innerText() })),
    ),
  overflow: (tab) => tab.page.evaluate(overflow),
  inspect: (tab, { rules }) => inspect(tab, rules),
  focused: (tab) => focused(tab),
  ring: (tab) => tab.page.evaluate(ring),
  window: (tab, { width, height, theme }) =>
    Promise.all([tab.page.setViewportSize({ width, height }), tab.page.emulateMedia({ colorScheme: theme })]).then(() => null),
  picture: (tab, { path, whole }) => tab.page.screenshot({ path, fullPage: whole, animations: "disabled" }).then(() => null),
};

/** Closes the window, unless that has been done. */
async function close({ tab }) {
  await tabs.get(tab)?.context.close();
  return null;
}

async function perform(order) {
  if (order.deed === "open") return open(order);
  if (order.deed === "close") return close(order);
  const tab = tabs.get(order.tab);
  return (await deeds[order.deed](tab, order)) ?? null;
}

async function answer(order) {
  const answer = { id: order.id };
  try {
    answer.value = await perform(order);
  } catch (error) {
    answer.error = `${order.deed}: ${error?.message ?? error}`;
  }
  answer.faults = tabs.get(order.tab)?.faults.splice(0) ?? [];
  if (order.deed === "close") tabs.delete(order.tab);
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

for await (const line of createInterface({ input: process.stdin })) answer(JSON.parse(line));
await browser.close();
await rm(process.env.HOME, { recursive: true, force: true });
