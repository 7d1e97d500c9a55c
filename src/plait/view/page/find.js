// Search within a run: a list of the places, and the way from one to the next.
import { button, flat, number, shown } from "./dom.js";
import { html } from "./html.js";

const AROUND = 60, MOST = 500;

// The same as `search` of ../timeline.py, for a file: in the texts that it has.
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
  const input = html`<input type="search" id="search" placeholder="Search in this run" autocomplete="off"
    aria-label="Search in this run" oninput=${() => input.value || look()}>`;
  const state = html`<span class="quiet" role="status"></span>`;
  const list = html`<ol class="hits"></ol>`;
  const steer = html`<span class="hit-steps" hidden>${[
    button("↑", () => move(-1), { "aria-label": "Previous place", title: "Previous place: N" }),
    button("↓", () => move(1), { "aria-label": "Next place", title: "Next place: n" }),
  ]}</span>`;
  let hits = [], count = 0, words = "", at = -1;
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
    list.replaceChildren(...hits.map(row));
    move(1);
  };
  const row = (hit, i) => {
    const show = () => {
      at = i - 1;
      move(1);
    };
    const field = flat(hit.field, 20).replace(/\d+$/, "");
    const where = html`<strong>${hit.step ? `Step ${hit.step}` : "Start"} · ${field}</strong>`;
    const text = html`<bdi>${shown(hit.before)}<mark>${shown(hit.found)}</mark>${shown(hit.after)}</bdi>`;
    return html`<li>${button([where, text], show)}</li>`;
  };
  const submit = (event) => {
    event.preventDefault();
    look();
  };
  const form = html`<form class="find" role="search" aria-label="In this run" onsubmit=${submit}>
    ${input}${state}${steer}</form>`;
  return { form, list, input, move, hasHits: () => hits.length > 0 };
};
