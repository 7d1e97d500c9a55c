// The pages put together: what the address names is shown, the bar on top stays.
import { problem } from "./dom.js";
import { html } from "./html.js";
import { keys } from "./keys.js";
import { sourceOfFile, server } from "./source.js";
import { theme } from "./theme.js";

const data = document.getElementById("data");
const file = data ? JSON.parse(data.textContent) : null;
const source = file ? sourceOfFile(file) : server;
const main = document.getElementById("main");
const IMPROVE = ["review", "changes", "datasets", "comparisons"];
let page = null;
let turn = 0;

const decoded = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};
const place = () => {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  if (file && parts[0] !== "runs") return { parts: ["runs", file.run.run], query: {} };
  const values = {};
  for (const [name, value] of new URLSearchParams(query))
    values[name] = name in values ? [values[name], value].flat() : value;
  return { parts, query: values };
};
const where = () => {
  const [kind, id, what, at] = place().parts;
  return kind === "runs" ? { run: id, wire: what === "wire" ? at : null } : {};
};

const show = async (inside, { parts: [kind, id, what, at], query }) => {
  if (!kind) return (await import("./runs.js")).runsPage(inside, source, query);
  if (kind === "runs" && id) {
    if (what === "wire") return (await import("./wire.js")).wirePage(inside, source, id, at, query);
    const how = { toStep: what === "step" ? at : null, isOverTime: what === "time" };
    return (await import("./run.js")).runPage(inside, source, id, how);
  }
  if (kind === "costs") return (await import("./costs.js")).costsPage(inside, source, query);
  if (kind === "sides" && what) return (await import("./sides.js")).sidesPage(inside, source, id, what);
  if (kind === "improve")
    return location.replace((await source.me()).roles.includes("change") ? "#/review" : "#/comparisons");
  if (kind === "changes" && id === "new") return (await import("./change.js")).newChangePage(inside, source, query);
  if (kind === "changes") return (await import("./changes.js")).changesPage(inside, source, id);
  if (kind === "datasets") return (await import("./datasets.js")).datasetsPage(inside, source, id);
  if (kind === "review") return (await import("./review.js")).reviewPage(inside, source, query);
  if (kind === "memory") return (await import("./memory.js")).memoryPage(inside, source);
  if (kind === "comparisons") return (await import("./datasets.js")).comparisonsPage(inside, source);
  throw new Error("There is no such page.");
};

const open = async (first = false) => {
  const mine = ++turn;
  const at = place(), [kind, id] = at.parts;
  const inside = html`<div class="page"></div>`;
  page?.leave?.();
  page = null;
  document.querySelectorAll("dialog").forEach((each) => each.close());
  main.setAttribute("aria-busy", "true");
  main.replaceChildren(inside);
  let made = null;
  try {
    const head = IMPROVE.includes(kind) && import("./improve.js").then((its) => its.improveHead(source, kind, !id));
    made = await show(inside, at);
    if (head) inside.before(await head);
  } catch (error) {
    inside.replaceChildren(html`<h1 tabindex="-1">That did not work</h1>${problem(error)}
      ${!file && html`<p><a href="#/">To the runs</a></p>`}`);
  }
  if (mine !== turn) return made?.leave?.();
  page = made;
  main.removeAttribute("aria-busy");
  const on = IMPROVE.includes(kind) ? "#/improve" : ["costs", "memory"].includes(kind) ? `#/${kind}` : "#/";
  for (const each of document.querySelectorAll("nav.pages a"))
    each.ariaCurrent = each.getAttribute("href") === on ? "page" : null;
  if (first || at.parts[2] === "step") return;
  scrollTo(0, 0);
  // Where somebody went on while the page was drawn, the focus stays.
  if (!inside.contains(document.activeElement)) main.querySelector("h1")?.focus({ preventScroll: true });
};

const look = theme();
if (source.me) import("./caller.js").then(({ showCaller }) => showCaller(source, document.getElementById("tools")));
const pressed = keys({ live: source.live, dark: look.turn, page: () => page, where });
const helper = html`<button type="button" onclick=${pressed.help} aria-label="Help" title="Help">?</button>`;
document.getElementById("tools").append(look.control, helper);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => open());
open(true);
