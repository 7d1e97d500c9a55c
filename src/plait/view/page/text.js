// A long text: its beginning, and the rest when it is asked for, so that no page waits for what nobody reads.
import { button, number, shown } from "./dom.js";
import { html } from "./html.js";

const FOLD = 1500, LINES = 24, CHUNK = 32768;

// Where a text is cut so that it shows its beginning: a number of characters, its length when it is short.
const fold = (text) => {
  let at = -1;
  for (let lines = 0; lines < LINES; lines++) {
    at = text.indexOf("\n", at + 1);
    if (at < 0 || at > FOLD) break;
  }
  const most = at < 0 || at > FOLD ? FOLD : at;
  return text.length <= most + 200 ? text.length : most;
};

const chunks = (text) => {
  const parts = [];
  for (let from = 0; from < text.length;) {
    let to = Math.min(text.length, from + CHUNK);
    if (to < text.length) {
      const newline = text.lastIndexOf("\n", to);
      if (newline > from) to = newline + 1;
      else if (/[\ud800-\udbff]/.test(text[to - 1])) to--;
    }
    parts.push(text.slice(from, to));
    from = to;
  }
  return parts;
};

// `cutText` is [text, how many characters are missing]; `rest(from)` gives [more text, how many are missing then].
export const long = (cutText, { rest = null, className = "", label = "text", missing = "" } = {}) => {
  const [text, more] = cutText;
  const body = html`<pre dir="auto"></pre>`;
  const box = html`<div class="text ${className}">${body}</div>`;
  const at = fold(text);
  if (at === text.length && !more) {
    body.append(...shown(text));
    return box;
  }
  // The server counts characters by code point, as Python does; what is here is counted so where it must go on.
  const have = more ? [...text].length : text.length;
  const size = number(have + more);
  // A long text scrolls in a box of its own, which the keyboard must be able to reach.
  const region = { role: "region", tabindex: "0", "aria-label": `All of the ${label}` };
  const bar = html`<p class="more"></p>`;
  const fill = () => {
    body.replaceChildren(...shown(text.slice(0, at).trimEnd()), " …");
    box.classList.remove("whole");
    for (const name in region) body.removeAttribute(name);
    const about = { "aria-label": `Show all of the ${label}, ${size} characters` };
    bar.replaceChildren(button(`Show all, ${size} characters`, all, about));
  };
  let stopped = false;
  const put = (piece) => body.append(...chunks(piece).map((each) => html`<span class="chunk">${shown(each)}</span>`));
  const all = async () => {
    stopped = false;
    body.replaceChildren();
    box.classList.add("whole");
    for (const name in region) body.setAttribute(name, region[name]);
    put(text);
    const less = button("Show less", () => {
      stopped = true;
      fill();
      bar.querySelector("button").focus();
    });
    const lost = more && !rest ? `${number(more)} more characters are not in this file. ${missing} ` : "";
    const state = html`<span role="status">${lost}</span>`;
    bar.replaceChildren(...(lost ? [state, less] : [less, " ", state]));
    less.focus();
    if (lost) return;
    let left = more, from = have;
    while (left && !stopped) {
      state.textContent = ` loading, ${number(left)} characters to go`;
      try {
        const [piece, then] = await rest(from);
        if (stopped || !piece) break;
        put(piece);
        from += [...piece].length;
        left = then;
        await new Promise((done) => setTimeout(done));
      } catch (error) {
        state.textContent = ` ${error.message}`;
        return;
      }
    }
    if (!stopped) state.textContent = "";
  };
  fill();
  box.append(bar);
  return box;
};
