// Visits pages with a real browser, and prints what it saw as JSON: visit.mjs DIRECTORY-WITH-NODE_MODULES < REQUEST.
// The request is an object. program: the browser; base: address of the server; token: for the login; pages: paths, each
// looked at in all `looks`, each a width and a theme; keys: how often the tabulator key is pressed; shots: pictures to
// take, each {path, width, theme, height, file}.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.argv[2]}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const HEIGHT = 900;
// More than the script of a page waits between two updates.
const LATER_MS = 6000;
const MOST_TRIES = 1000;

const asked = JSON.parse(readFileSync(0, "utf8"));
const seen = { requests: [], errors: [], visits: [], login: { violations: [] } };
const browser = await chromium.launch({ executablePath: asked.program, args: ["--no-sandbox"] });

async function opened(options = {}) {
  const context = await browser.newContext({ baseURL: asked.base, ...options });
  context.on("request", (request) => seen.requests.push(request.url()));
  context.on("weberror", (error) => seen.errors.push(String(error.error())));
  context.on("console", (message) => {
    if (message.type() === "error") seen.errors.push(message.text());
  });
  return context;
}

async function loggedIn(context) {
  const page = await context.newPage();
  await page.goto(asked.pages[0]);
  seen.login.at = page.url();
  await page.fill("#token", asked.token);
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.pathname !== "/login");
  return page;
}

// The tools of a developer put axe into the page, past its policy, which stays in force for the page itself.
async function audited(page) {
  const { violations, incomplete } = await page.evaluate(`(() => { ${axe}; return axe.run(document); })()`);
  const told = (each) => `${each.id}: ${each.nodes.map((node) => node.target.join(" ")).join(", ")}`;
  return { violations: violations.map(told), incomplete: incomplete.map(told) };
}

async function looks(width, theme) {
  const context = await opened({ viewport: { width, height: HEIGHT }, colorScheme: theme });
  const page = await loggedIn(context);
  for (const path of asked.pages) {
    const answer = await page.goto(path);
    seen.visits.push({
      path,
      width,
      theme,
      status: answer.status(),
      title: await page.title(),
      text: await page.innerText("main"),
      links: await page.$$eval("main a", (links) => links.map((link) => link.textContent)),
      background: await page.evaluate("getComputedStyle(document.body).backgroundColor"),
      overflow: await page.evaluate("document.documentElement.scrollWidth - window.innerWidth"),
      ...(await audited(page)),
    });
  }
  for (const shot of asked.shots ?? []) {
    if (shot.width !== width || shot.theme !== theme) continue;
    await page.setViewportSize({ width, height: shot.height });
    await page.goto(shot.path);
    await page.screenshot({ path: shot.file });
  }
  await context.close();
}

async function login() {
  const context = await opened();
  const page = await context.newPage();
  await page.goto(asked.pages[0]);
  seen.login.violations = (await audited(page)).violations;
  await page.fill("#token", `${asked.token}x`);
  await page.keyboard.press("Enter");
  await page.waitForSelector("[role=alert]");
  seen.login.failed = await page.innerText("[role=alert]");
  await context.close();
  // What the browser writes about the wrong token.
  seen.errors = seen.errors.filter((text) => !text.includes("status of 403"));
}

async function keyboard() {
  const context = await opened();
  const page = await loggedIn(context);
  seen.keys = [];
  for (let press = 0; press < asked.keys; press++) {
    await page.keyboard.press("Tab");
    seen.keys.push(
      await page.evaluate(() => {
        const at = document.activeElement;
        return { text: at.textContent.trim(), outlined: getComputedStyle(at).outlineStyle !== "none" };
      }),
    );
  }
  await context.close();
}

async function live() {
  const context = await opened();
  const page = await loggedIn(context);
  await page.clock.install();
  await page.goto("/");
  await page.focus("main a, footer a");
  const before = await page.innerText("#moment");
  // The moment has seconds: the next one has to come.
  for (let tries = 0; tries < MOST_TRIES && (await page.innerText("#moment")) === before; tries++) {
    await page.clock.runFor(LATER_MS);
  }
  seen.live = { changed: (await page.innerText("#moment")) !== before };
  seen.live.focused = await page.evaluate("document.activeElement.tagName");
  await page.click("#pause");
  seen.live.paused = [await page.innerText("#live"), await page.innerText("#pause")];
  await context.route("**/*", (route) => route.abort());
  await page.click("#pause");
  await page.waitForFunction(() => document.getElementById("live").innerText.startsWith("Not updated"));
  seen.live.away = await page.innerText("#live");
  await context.unroute("**/*");
  await context.clearCookies();
  await page.clock.runFor(LATER_MS);
  await page.waitForURL((url) => url.pathname === "/login");
  await context.close();
  // What the browser writes about the requests that were cut.
  seen.errors = seen.errors.filter((text) => !text.includes("ERR_FAILED"));
}

async function withoutScript() {
  const context = await opened({ javaScriptEnabled: false });
  const page = await loggedIn(context);
  seen.plain = [];
  for (const path of asked.pages) {
    await page.goto(path);
    const buttons = await page.locator("button:visible").allInnerTexts();
    seen.plain.push({ path, text: await page.locator("main").innerText(), buttons });
  }
  await page.getByRole("button", { name: "Log out" }).click();
  seen.login.after = page.url();
  await page.goto(asked.pages[0]);
  seen.login.out = page.url();
  await context.close();
}

for (const [width, theme] of asked.looks) await looks(width, theme);
await login();
await keyboard();
await live();
await withoutScript();
await browser.close();
process.stdout.write(JSON.stringify(seen));
