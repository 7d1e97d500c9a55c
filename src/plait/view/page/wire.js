// The wire of one step: requests and responses as they were, and what a request has that the one before had not.
import { bdi, button, duration, line, link, many, number, runAddress, shown } from "./dom.js";
import { html } from "./html.js";
import { long } from "./text.js";

const SAME = 500, EDGE = 120;

const same = (text) => html`<span class="same">${shown(text)}</span>`;
const folded = (text) => {
  const middle = text.slice(EDGE, -EDGE);
  const open = () => place.replaceChildren(same(middle));
  const place = html`<span>${button(`${number(middle.length)} characters as before`, open, { class: "fold" })}</span>`;
  return [same(text.slice(0, EDGE)), place, same(text.slice(-EDGE))];
};

// A text with its marks; long parts that are as before are folded.
export const marked = (request, before, marks) => {
  const joined = [];
  for (const [sign, what] of marks) {
    if (sign === "=" && joined.at(-1)?.[0] === "=") joined.at(-1)[1] += what;
    else joined.push([sign, what]);
  }
  let at = 0, gone = 0;
  return joined.flatMap(([sign, what]) => {
    if (sign === "+") {
      at += what.length;
      return html`<ins>${shown(what)}</ins>`;
    }
    gone += what;
    if (sign === "-") return html`<del>${shown(before.slice(gone - what, gone))}</del>`;
    at += what;
    const text = request.slice(at - what, at);
    return text.length > SAME ? folded(text) : same(text);
  });
};

const parsed = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
};
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value ?? null, null, 2));
const code = (value, label) => long([asText(value), 0], { className: "code", label });

// A request as a person reads it: messages one by one, those that are as before folded, then the other settings.
const readable = (request, before) => {
  const now = parsed(request), then = before === null ? null : parsed(before);
  if (!now || typeof now !== "object") return null;
  const { messages, prompt, ...settings } = now;
  const all = Array.isArray(messages) ? messages : [], was = then?.messages || [];
  const change = (each, i) => {
    if (!then) return "";
    return JSON.stringify(each) === JSON.stringify(was[i]) ? "as before" : i < was.length ? "changed" : "new";
  };
  const mark = (words) => words && html`<span class="mark is-${words.replace(" ", "-")}">${words}</span>`;
  const message = (each, i) => {
    const { role, content, ...more } = each, words = change(each, i), text = asText(content);
    const size = html`<span class="quiet">${many(text.length, "character")}</span>`;
    const head = html`<strong>${shown(String(role))}</strong> ${size}${mark(words)}`;
    const rest = Object.keys(more).length ? code(more, "rest of the message") : null;
    const body = [long([text, 0], { label: `${role} message` }), rest];
    if (words === "as before")
      return html`<li class="message"><details><summary>${head}</summary>${body}</details></li>`;
    return html`<li class="message ${words && "fresh"}"><p class="message-head">${head}</p>${body}</li>`;
  };
  const setting = ([name, value]) => {
    const isChanged = then && JSON.stringify(then[name]) !== JSON.stringify(value);
    const how = isChanged && html`<span class="mark is-changed">${name in then ? "changed" : "new"}</span>`;
    return html`<dt>${shown(name)}${how}</dt><dd>${code(value, name)}</dd>`;
  };
  const fewer = was.length - all.length, are = fewer === 1 ? "is" : "are";
  return html`
    ${all.length ? html`<ol class="messages">${all.map(message)}</ol>` : null}
    ${fewer > 0 && html`<p class="quiet">${many(fewer, "message")} of the request before ${are} not in this one.</p>`}
    ${typeof prompt === "string" && long([prompt, 0], { label: "prompt" })}
    <h3>Settings</h3>
    <dl class="settings">${Object.entries(settings).map(setting)}</dl>`;
};

let view = "read";

// A body in two forms, to be chosen with buttons: `read()` gives null for a body that has only the one of `whole()`.
const views = (name, whole, read) => {
  const body = html`<div></div>`;
  const choose = (which) => {
    view = which;
    for (const each of bar.children) each.setAttribute("aria-pressed", String(each.dataset.view === which));
    body.replaceChildren((which === "read" && read()) || whole());
  };
  const pick = (which, words) => button(words, () => choose(which), { "data-view": which });
  const choices = [pick("read", "To read"), pick("whole", "As it was")];
  const bar = html`<div class="tabs" role="group" aria-label="${name}: how it is shown">${choices}</div>`;
  choose(view);
  return [bar, body];
};

const exchange = (source, run, each, before) => {
  const was = each.before === null ? null : (before[each.before] ?? null);
  const name = `${each.phase || "?"}, attempt ${each.attempt}`;
  const exact = (seq, words) => source.exact && link(words, source.exact(run, seq), { download: "", class: "act" });
  const body = (label, text) =>
    html`<pre class="exact" dir="auto" tabindex="0" role="region" aria-label=${label}>${text}</pre>`;
  const changes = was === null
    ? html`<p class="quiet">The first request of this phase: there is none before it to compare with.</p>`
    : html`<p class="quiet"><ins>new</ins> <del>gone</del> since the request before of this phase</p>`;
  const request = () => {
    const text = was === null ? shown(each.request) : marked(each.request, was, each.marks);
    return html`${changes}${body(`Request, ${name}, as sent`, text)}`;
  };
  const response = () => body(`Response, ${name}, as received`, shown(each.response));
  const tidy = () => {
    const found = parsed(each.response);
    return found === null ? null : code(found, "response");
  };
  const nothing = each.answered === null ? "None is on record." : "It has no body on record.";
  const isOdd = each.odd && "not all of it is UTF-8: odd bytes are shown as \\xNN";
  const about = bdi(`${each.phase} · ${each.model}`), attempt = each.attempt > 1 ? ` · attempt ${each.attempt}` : "";
  return html`<article class="exchange" aria-label="Exchange, ${name}" id="request-${each.seq}" tabindex="-1">
    <h2>Request <small>${about}${attempt}</small></h2>
    <p class="path"><code>POST ${shown(each.path)}</code></p>
    ${line("facts-line", `${number(each.bytes[0])} bytes`, isOdd, exact(each.seq, "save as sent"))}
    ${views("Request", request, () => readable(each.request, was))}
    <h2>Response</h2>
    ${line(
      "facts-line",
      each.status === null ? "no response" : `status ${each.status}`,
      each.seconds !== null && duration(each.seconds),
      each.response !== null && `${number(each.bytes[1])} bytes`,
      each.cut && "cut at a stop",
      each.response !== null && each.answered !== null && exact(each.answered, "save as received"),
    )}
    ${each.error && html`<p class="why">${shown(each.error)}</p>`}
    ${each.response ? views("Response", response, tidy) : html`<p class="quiet">${nothing}</p>`}
  </article>`;
};

// `look.view`: "whole" shows bodies as they were, with what changed; `look.seq`: the request to go to.
export const wirePage = async (place, source, id, step, look = {}) => {
  if (look.view || look.seq) view = look.view || "read";
  const { steps, exchanges, before } = await source.wire(id, step);
  const at = steps.indexOf(Number(step)), back = runAddress(id, "step", step);
  const to = (n, words) => n !== undefined && link(words, runAddress(id, "wire", n), { class: "act" });
  place.replaceChildren(html`<header class="run-head">
      <p class="crumbs">${source.live && [link("Runs", "#/"), " / "]}${link(id, back)}</p>
      <h1 tabindex="-1">Wire of step ${step}</h1>
      <p class="quiet">Bodies exactly as they were sent and received. Headers are not on record.</p>
      <nav class="pager" aria-label="Steps">
        ${to(steps[at - 1], "← step before")}
        ${link("back to the run", back, { class: "act" })}
        ${to(steps[at + 1], "next step →")}
      </nav>
    </header>
    ${exchanges.map((each) => exchange(source, id, each, before))}
    ${exchanges.length ? null : html`<p>This step asked no model.</p>`}`);
  document.title = `Wire of step ${step} · Plait`;
  const wanted = look.seq && exchanges.length > 1 && document.getElementById(`request-${look.seq}`);
  if (wanted) setTimeout(() => wanted.scrollIntoView({ block: "start" }));
};
