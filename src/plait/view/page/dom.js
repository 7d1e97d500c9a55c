// Elements, and texts of others as text: nothing here ever reads markup.
import { html, inside, setAttribute } from "./html.js";

// The characters that `show_hidden` of core/text.py shows by their number.
const HIDDEN = new RegExp(
  [
    // control characters (not tab and newline), halves of pairs
    "[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff]",
    // direction marks, signs without a width, line separators, fillers, tags
    "[\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200e\\u200f]",
    "[\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0d]",
    "[\\ufeff\\uffa0\\ufff0-\\ufffb\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]",
    // joiners that do not stand between letters of other scripts, selectors of a form that do not follow an emoji
    "(?<![^\\x00-\\x7f\\u200b-\\u200f])[\\u200c\\u200d]|[\\u200c\\u200d](?![^\\x00-\\x7f\\u200b-\\u200f])",
    "(?<![\\xa9\\xae\\u203c-\\u3299\\u{1f000}-\\u{1faff}])[\\ufe0e\\ufe0f]",
  ].join("|"),
  "gu",
);
const MANY = 2000;

const element = (tag, attributes, content) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(made, name, value);
  made.append(...inside(content));
  return made;
};

export const button = (words, onclick, attributes = {}) =>
  element("button", { type: "button", onclick, ...attributes }, words);
export const link = (words, href, attributes = {}) => element("a", { href, ...attributes }, words);
export const pageAddress = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
export const runAddress = (...parts) => pageAddress("runs", ...parts);
// An address with the values that are given; a list gives its name several times.
export const withQuery = (address, values) => {
  const pairs = Object.entries(values).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  const query = new URLSearchParams(pairs.filter(([, value]) => !["", null, undefined].includes(value)));
  return query.size ? `${address}?${query}` : address;
};

const coded = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

// A text as nodes: what can't be seen is shown by its number.
export const shown = (text) => {
  const parts = [];
  let from = 0, count = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (++count > MANY) {
      parts.push(text.slice(from).replace(HIDDEN, (each) => `[${coded(each)}]`));
      return parts;
    }
    if (found.index > from) parts.push(text.slice(from, found.index));
    parts.push(html`<span class="hidden-sign">${coded(found[0])}</span>`);
    from = found.index + found[0].length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
};

// The same within text of another direction.
export const bdi = (text) => html`<bdi>${shown(text)}</bdi>`;

// The same on one line, as plain text, for titles and labels.
export const flat = (text, most = 200) => {
  const visible = text.slice(0, most + 200).replace(HIDDEN, (each) => `[${coded(each)}]`);
  const clean = visible.replace(/\s+/g, " ").trim();
  return clean.length > most ? `${clean.slice(0, most)}…` : clean;
};

export const number = (value) => (value ?? 0).toLocaleString("en-US", { maximumFractionDigits: 2 });
export const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

export const money = (usd) => {
  if (usd === null || usd === undefined) return "price not known";
  if (usd === 0) return "0 USD";
  return `${usd >= 0.01 ? usd.toFixed(4) : Number(usd.toPrecision(3))} USD`;
};

export const duration = (seconds) => {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.0005) return "0 ms";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
};

export const tokens = (each) => {
  if (!each.in && !each.out) return "";
  const parts = (...kinds) => {
    const used = kinds.filter(([count]) => count).map(([count, word]) => `${number(count)} ${word}`);
    return used.length ? ` (${used.join(", ")})` : "";
  };
  const read = parts([each.cached, "cached"], [each.cache_writes, "cache writes"]);
  const written = parts([each.reasoning_tokens, "reasoning"]);
  return `${each.estimated ? "about " : ""}${number(each.in)} in${read}, ${number(each.out)} out${written}`;
};

// When, as a person says it. `isShort`: for a column of a table, without the year if it is clear.
export const when = (seconds, isShort = false) => {
  const at = new Date(seconds * 1000), ago = Date.now() / 1000 - seconds;
  const year = isShort && ago < 300 * 86400 ? undefined : "numeric";
  const day = at.toLocaleDateString(undefined, { day: "numeric", month: "short", year });
  const clock = at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  const date = at.toDateString() === new Date().toDateString() ? "today" : day;
  return html`<time datetime=${at.toISOString()}>${date} ${clock}</time>`;
};

// Facts on a line, parted by dots that a screen reader reads as pauses.
export const line = (className, ...facts) => {
  const dotted = inside(facts).map((each, i) => (i ? [html`<span class="dot"> · </span>`, each] : each));
  return html`<p class=${className}>${dotted}</p>`;
};

export const STATES = {
  running: ["●", "running"],
  waiting: ["?", "waits"],
  answered: ["✓", "answered"],
  stopped: ["■", "stopped"],
  failed: ["✗", "failed"],
  crashed: ["!", "crashed"],
  cancelled: ["–", "cancelled"],
  interrupted: ["~", "interrupted"],
};
// How a run ended: an answer that a comparison graded as wrong, or a user rated as bad, is no success.
export const endOf = (run) =>
  run.status === "answered" && ((run.grade && !run.grade.success) || run.rating === "bad") ? "wrong" : run.status;
// `isShort`: grade and rating are words beside the status, which only a title and a screen reader have whole.
export const chip = (run, isShort = false) => {
  const end = endOf(run), [sign, words] = STATES[run.status] || ["·", run.status];
  const more = [
    run.grade && ["graded", run.grade.mark, run.grade.success],
    run.rating && ["rated", run.rating, run.rating === "good"],
  ].filter(Boolean);
  const rest = isShort ? null : more.map(([how, word]) => bdi(`, ${how} ${word}`));
  const seen = end === "wrong" ? "✗" : sign;
  const whole = html`<span class="chip is-${end}"><span aria-hidden="true">${seen}</span> ${words}${rest}</span>`;
  const short = ([how, word, isGood]) => {
    const label = `${how} ${flat(word)}`;
    const kind = isGood ? "answered" : "wrong";
    return html`<span class="chip is-${kind}" role="img" title=${label} aria-label=${label}>${shown(word)}</span>`;
  };
  return isShort ? [whole, more.map(short)] : whole;
};

// What the pages' words mean: the help has all of them, and a label or link its own as its title.
export const WORDS = new Map([
  ["run", "one question, answered by one agent"],
  ["step", "one turn of the agent: a thought, and what follows from it"],
  ["braid", "the picture of a run: thoughts, actions and observations are strands, which cross after each step"],
  ["thought", "what the model writes before it acts"],
  ["action", "what the model asks for: a call of a tool, or code"],
  ["observation", "the result of an action, as the model sees it"],
  ["phase", "the kind of a model call, such as act or plan"],
  ["wire", "the exact requests to the model, and its responses"],
  ["fork", "a new run that keeps the first steps of another one and runs the rest again"],
  ["grade", "how a comparison judged an answer against the expected one"],
  ["rating", "how a user judged a run: good or bad"],
]);

// The fields of an input that is a JSON object; null for another, and for numbers that JavaScript would change.
export const fieldsOf = (text) => {
  if (!text.startsWith("{") || /\d{16}/.test(text)) return null;
  try {
    const fields = Object.entries(JSON.parse(text));
    return fields.length ? fields : null;
  } catch {
    return null;
  }
};

// -- dialogs

// Shows a dialog, which is gone when it is closed.
export const openDialog = (kind, title, ...inside) => {
  const dialog = html`<dialog class=${kind} aria-labelledby="dialog-title" onclose=${() => dialog.remove()}>
    <h2 id="dialog-title" tabindex="-1">${title}</h2>${inside}</dialog>`;
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("h2").focus();
  return dialog;
};
// The end of a dialog's form: what it does (none without words), and the way out.
export const closeButtons = (words = "", look = "") => {
  const close = (event) => event.target.closest("dialog").close();
  const act = words && html`<button type="submit" class="main-act ${look}">${words}</button>`;
  return html`<div class="buttons last">${act}${button("Close", close)}</div>`;
};

// -- what is said aloud, politely and not too often

let last = 0, waiting = null, words = "";
export const announce = (text) => {
  words = text;
  if (waiting) return;
  const say = () => {
    waiting = null;
    last = Date.now();
    const place = document.getElementById("said");
    if (place) place.textContent = words;
  };
  waiting = setTimeout(say, Math.max(50, 2500 - (Date.now() - last)));
};

// -- a message that something went wrong

export const problem = (error) => {
  const message = html`<strong>${shown(error.message || String(error))}</strong>`;
  return html`<div class="problem" role="alert">${message}${error.hint && [" ", shown(error.hint)]}</div>`;
};
