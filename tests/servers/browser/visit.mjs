// Visits pages with a real browser, and prints what it saw as JSON. Reads one JSON object from standard input:
// program: the browser; base: address of the server; token: for the login; pages: paths; widths and themes: each page is
// looked at in all of them; shots: {path, width, theme, file} of pictures to take.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const asked = JSON.parse(readFileSync(0, "utf8"));
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const HEIGHT = 900;

const browser = await chromium.launch({ executablePath: asked.program, args: ["--no-sandbox"] });
const seen = { requests: [], errors: [], visits: [], login: {} };

async function opened(options) {
  const context = await browser.newContext({ baseURL: asked.base, ...options });
  context.on("request", (request) => seen.requests.push(request.url()));
  context.on("weberror", (error) => seen.errors.push(String(error.error())));
  context.on("console", (message) => {
    // What axe is given runs in the page too, and is no part of it.
    if (message.type() === "error" && !message.location().url.includes("axe")) seen.errors.push(message.text());
  });
  return context;
}

async function logIn(page, path) {
  await page.goto(path);
  const at = page.url();
  await page.fill("#token", asked.token);
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.pathname !== "/login");
  return at;
}

async function audited(page) {
  const found = await page.evaluate(`(() => { ${axe}; return axe.run(document); })()`);
  return found.violations.map((each) => `${each.id}: ${each.nodes.map((node) => node.target.join(" ")).join(", ")}`);
}

async function look(page, path, width, theme) {
  const answer = await page.goto(path);
  seen.visits.push({
    path,
    width,
    theme,
    script: page.context().script,
    status: answer.status(),
    title: await page.title(),
    text: await page.innerText("body"),
    links: await page.$$eval("main a", (links) => links.map((link) => [link.textContent, link.getAttribute("href")])),
    overflow: await page.evaluate("document.documentElement.scrollWidth - window.innerWidth"),
    violations: await audited(page),
  });
}

async function looks(width, theme) {
  // The audit is put into the page by the developer's tools: the page's own policy, which has no place for it, is on.
  const context = await opened({ viewport: { width, height: HEIGHT }, colorScheme: theme });
  const page = await context.newPage();
  await page.goto(asked.pages[0]);
  seen.login.violations = [...(seen.login.violations ?? []), ...(await audited(page))];
  seen.login.at = await logIn(page, asked.pages[0]);
  seen.login.cookies = await context.cookies();
  for (const path of asked.pages) await look(page, path, width, theme);
  for (const shot of asked.shots ?? []) {
    if (shot.width === width && shot.theme === theme) {
      await page.goto(shot.path);
      await page.screenshot({ path: shot.file, fullPage: shot.full ?? false });
    }
  }
  await context.close();
}

async function keyboard() {
  // From the top of a page, what the tabulator key reaches, until it is at the first again.
  const context = await opened({ viewport: { width: asked.widths[0], height: HEIGHT } });
  const page = await context.newPage();
  await logIn(page, asked.pages[0]);
  seen.keys = [];
  for (let press = 0; press < asked.keys; press++) {
    await page.keyboard.press("Tab");
    seen.keys.push(
      await page.evaluate(() => {
        const at = document.activeElement;
        const style = getComputedStyle(at);
        return [at.textContent.trim(), style.outlineStyle !== "none"];
      }),
    );
  }
  await context.close();
}

async function live() {
  // The page changes by itself, and a button stops that.
  const context = await opened({});
  const page = await context.newPage();
  await page.clock.install();
  await logIn(page, "/");
  const before = await page.innerText("#moment");
  await page.clock.runFor(6000);
  await page.waitForFunction((old) => document.getElementById("moment").innerText !== old, before, { polling: 100 }).catch(() => {});
  seen.live = { before, after: await page.innerText("#moment") };
  await page.click("#pause");
  seen.live.paused = await page.innerText("#live");
  await page.click("#pause");
  await context.route("**/*", (route) => route.abort());
  await page.clock.runFor(6000);
  await page.waitForFunction(() => document.getElementById("live").innerText !== "");
  seen.live.away = await page.innerText("#live");
  seen.errors = seen.errors.filter((text) => !text.includes("ERR_FAILED"));
  await context.close();
}

async function withoutScript() {
  const context = await opened({ javaScriptEnabled: false, viewport: { width: asked.widths[0], height: HEIGHT } });
  const page = await context.newPage();
  await logIn(page, asked.pages[0]);
  seen.plain = [];
  for (const path of asked.pages) {
    await page.goto(path);
    seen.plain.push({ path, text: await page.locator("main").innerText(), buttons: await page.locator("button:visible").allInnerTexts() });
  }
  await page.getByRole("button", { name: "Log out" }).click();
  seen.login.after = page.url();
  await page.goto(asked.pages[0]);
  seen.login.out = page.url();
  await context.close();
}

for (const width of asked.widths) for (const theme of asked.themes) await looks(width, theme);
await keyboard();
await live();
await withoutScript();
await browser.close();
process.stdout.write(JSON.stringify(seen));
