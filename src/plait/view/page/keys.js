// Single keys, and the help: what the words mean, and a list of the keys.
import { closeButtons, openDialog, runAddress, WORDS } from "./dom.js";
import { html } from "./html.js";
import { keep, kept } from "./theme.js";

const KEYS = [
  ["?", "this help"],
  ["/", "search the runs, or in the run"],
  ["j", "next step, or next run"],
  ["k", "step before, or run before"],
  ["w", "wire of the step"],
  ["f", "change and run again from the step"],
  ["b", "back: from the wire to its run, from a run to the list"],
  ["e", "to the last step"],
  ["a", "answer what the run waits for"],
  ["r", "the list of runs"],
  ["n", "next place that was found; elsewhere: new conversation"],
  ["N", "place before"],
  ["t", "steps, or the run over time"],
  ["c", "comparisons"],
  ["d", "dark, light, or as the system says"],
  ["Esc", "close this"],
];
const HELD = new Set(["?", "/", "j", "k", "w", "b", "e", "n", "N", "t", "d", "Esc"]);
const help = (live, shows) => {
  const list = KEYS.filter(([key]) => (shows ? shows.includes(key) : live || HELD.has(key)));
  const hold = ({ target }) => keep("plait-keys", target.checked ? "on" : "off");
  openDialog("small", "Help", html`<h3>Words</h3>
    <dl class="keys">${[...WORDS].map(([word, meaning]) => html`<dt>${word}</dt><dd>${meaning}</dd>`)}</dl>
    <h3>Keys</h3>
    <dl class="keys">${list.map(([key, words]) => html`<dt><kbd>${key}</kbd></dt><dd>${words}</dd>`)}</dl>
    <p><input type="checkbox" id="keys-on" checked=${kept("plait-keys", "on") === "on"} onchange=${hold}>
      <label for="keys-on">Single keys do something</label></p>
    <p class="quiet">Tab and Enter reach everything as well.</p>${closeButtons()}`);
};

const among = (selector, by) => {
  const all = [...document.querySelectorAll(selector)];
  const at = all.findIndex((each) => each.contains(document.activeElement) || each === document.activeElement);
  const first = by > 0 ? all.findIndex((each) => each.getBoundingClientRect().top > 0) : all.length - 1;
  return all[Math.max(0, Math.min(all.length - 1, at >= 0 ? at + by : first))];
};
const reach = (found) => {
  if (!found) return;
  const to = found.matches(".run") ? found.querySelector("a") : found.querySelector("h3");
  found.scrollIntoView({ block: "nearest" });
  to.focus({ preventScroll: true });
  to.scrollIntoView({ block: "nearest" });
};

// `own` are the acts of a page that has others; only these, and those that go to a page, work there.
export const keys = ({ live, dark, page, where, own = null }) => {
  const step = () =>
    document.activeElement?.closest(".step") ||
    [...document.querySelectorAll(".step")].find((each) => each.getBoundingClientRect().bottom > 120);
  const go = (to) => {
    if (live) location.href = own ? `./${to}` : to;
  };
  const usual = {
    "?": () => pressed(),
    "/": () => {
      if (!page()?.search) go("#/");
      setTimeout(() => document.getElementById("search")?.focus(), 60);
    },
    j: () => reach(among(".step, .run", 1)),
    k: () => reach(among(".step, .run", -1)),
    e: () => reach([...document.querySelectorAll(".step")].at(-1)),
    w: () => {
      const at = step();
      if (at && where().run) location.hash = runAddress(where().run, "wire", at.dataset.step);
    },
    f: () => {
      const at = step();
      if (at && live) page()?.fork?.(Number(at.dataset.step));
    },
    b: () => {
      const { run, wire } = where();
      if (run && wire) location.hash = runAddress(run, "step", wire);
      else go("#/");
    },
    a: () => document.querySelector("form.answer button, form.answer textarea")?.focus(),
    r: () => go("#/"),
    n: () => (page()?.found?.hasHits() ? page().found.move(1) : go("chat")),
    N: () => page()?.found?.move(-1),
    t: () => page()?.turn?.(),
    c: () => go("#/comparisons"),
    d: dark,
  };
  const acts = own ? { "?": usual["?"], a: usual.a, r: usual.r, c: usual.c, d: usual.d, ...own } : usual;
  const pressed = () => help(live, own && [...Object.keys(acts), "Esc"]);
  addEventListener("keydown", (event) => {
    const isOther = event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented;
    if (isOther || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const act = Object.hasOwn(acts, event.key) ? acts[event.key] : null;
    if (!act || (kept("plait-keys", "on") !== "on" && event.key !== "?")) return;
    event.preventDefault();
    act();
  });
  return { help: pressed };
};
