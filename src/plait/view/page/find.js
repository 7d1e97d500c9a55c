// Search within a run: a list of the places, and the way from one to the next.
import { button, flat, make, number, shown } from "./dom.js";

const AROUND = 60,
  MOST = 500;

// The same as ../text_search.py, for a file: in the texts that it has.
export const findIn = (steps, words) => {
  const hits = [],
    wanted = words.toLowerCase();
  for (const step of steps)
    for (const item of step.items)
      for (const [field, value] of Object.entries(item)) {
        const text = Array.isArray(value) && typeof value[0] === "string" ? value[0] : field === "tool" ? value : "";
        const low = text.toLowerCase();
        for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, at + wanted.length)) {
          const end = at + wanted.length;
          const parts = { before: text.slice(Math.max(0, at - AROUND), at), found: text.slice(at, end) };
          hits.push({ step: item.step, item: item.id, field, ...parts, after: text.slice(end, end + AROUND) });
        }
      }
  return { hits: hits.slice(0, MOST), count: hits.length };
};

// `search(words)` gives {hits, count}; `go(hit)` shows one.
export const finder = (search, go) => {
  const input = make("input", {
    type: "search",
    id: "search",
    placeholder: "Search in this run",
    autocomplete: "off",
    "aria-label": "Search in this run",
  });
  const state = make("span.quiet", { role: "status" });
  const list = make("ol.hits");
  const steer = make("span.hit-steps", { hidden: true });
  let hits = [],
    count = 0,
    words = "",
    at = -1;
  const move = (by) => {
    if (!hits.length) return;
    at = (at + by + hits.length) % hits.length;
    list.querySelector("[aria-current]")?.removeAttribute("aria-current");
    const now = list.children[at].querySelector("button");
    now.setAttribute("aria-current", "true");
    now.scrollIntoView({ block: "nearest" });
    state.textContent = `${number(at + 1)} of ${number(count)}`;
    go(hits[at]);
  };
  const look = async () => {
    if (words === input.value.trim() && hits.length) return move(1);
    words = input.value.trim();
    try {
      ({ hits, count } = words ? await search(words) : { hits: [], count: 0 });
    } catch (error) {
      state.textContent = error.message;
      return;
    }
    at = -1;
    steer.hidden = !hits.length;
    state.textContent = !words ? "" : count ? `${number(count)} found` : "Nothing found";
    list.replaceChildren(
      ...hits.map((hit, i) =>
        make(
          "li",
          {},
          button(
            [
              make("strong", {}, hit.step ? `Step ${hit.step}` : "Start", ` · ${flat(hit.field, 20).replace(/\d+$/, "")}`),
              make("bdi", {}, shown(hit.before), make("mark", {}, shown(hit.found)), shown(hit.after)),
            ],
            () => {
              at = i - 1;
              move(1);
            },
          ),
        ),
      ),
    );
    if (hits.length) move(1);
  };
  steer.append(
    button("↑", () => move(-1), { "aria-label": "Previous place", title: "Previous place: N" }),
    button("↓", () => move(1), { "aria-label": "Next place", title: "Next place: n" }),
  );
  const form = make("form.find", { role: "search", "aria-label": "In this run" }, input, state, steer);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    look();
  });
  input.addEventListener("input", () => {
    if (!input.value) look();
  });
  return { form, list, input, move, hasHits: () => hits.length > 0 };
};
