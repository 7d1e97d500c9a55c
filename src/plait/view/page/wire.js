// The wire of one step: requests and responses as they were, and what a request has that the one before had not.
import { button, duration, link, line, make, many, number, shown } from "./dom.js";
import { long } from "./text.js";

const SAME = 500,
  EDGE = 120;

// A text with its marks; long parts that are as before are folded.
export const marked = (request, before, marks) => {
  const nodes = [];
  let at = 0,
    gone = 0;
  for (const [sign, what] of joined(marks)) {
    if (sign === "=") {
      const text = request.slice(at, at + what);
      at += what;
      gone += what;
      nodes.push(...(text.length > SAME ? folded(text) : [make("span.same", {}, shown(text))]));
    } else if (sign === "+") {
      at += what.length;
      nodes.push(make("ins", {}, shown(what)));
    } else {
      nodes.push(make("del", {}, shown(before.slice(gone, gone + what))));
      gone += what;
    }
  }
  return nodes;
};
const joined = (marks) => {
  const made = [];
  for (const [sign, what] of marks) {
    if (sign === "=" && made.at(-1)?.[0] === "=") made.at(-1)[1] += what;
    else made.push([sign, what]);
  }
  return made;
};
const folded = (text) => {
  const middle = text.slice(EDGE, text.length - EDGE);
  const place = make("span");
  const open = button(
    `${number(middle.length)} characters as before`,
    () => place.replaceChildren(make("span.same", {}, shown(middle))),
    { class: "fold" },
  );
  place.append(open);
  return [make("span.same", {}, shown(text.slice(0, EDGE))), place, make("span.same", {}, shown(text.slice(-EDGE)))];
};

const parsed = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
};
const content = (each) =>
  typeof each.content === "string" ? each.content : JSON.stringify(each.content ?? null, null, 2);

// A request as a person reads it: messages one by one, those that are as before folded, then the other settings.
const readable = (request, before) => {
  const now = parsed(request),
    then = before === null ? null : parsed(before);
  if (!now || typeof now !== "object") return null;
  const { messages, ...others } = now;
  const was = then?.messages || [];
  const drawn = (Array.isArray(messages) ? messages : []).map((each, i) => {
    const same = then && JSON.stringify(each) === JSON.stringify(was[i]);
    const mark = !then ? "" : same ? "as before" : i < was.length ? "changed" : "new";
    const { role, content: _, ...more } = each;
    const body = [
      long([content(each), 0], { label: `${role} message` }),
      Object.keys(more).length
        ? long([JSON.stringify(more, null, 2), 0], { className: "code", label: "rest of the message" })
        : null,
    ];
    const head = [
      make("strong", {}, shown(String(role))),
      " ",
      make("span.quiet", {}, many(content(each).length, "character")),
      mark ? make(`span.mark.is-${mark.replace(" ", "-")}`, {}, mark) : null,
    ];
    return make(
      `li.message${mark === "new" || mark === "changed" ? ".fresh" : ""}`,
      {},
      same ? make("details", {}, make("summary", {}, head), body) : [make("p.message-head", {}, head), body],
    );
  });
  const fewer = was.length - (messages?.length || 0);
  const { prompt, ...settings } = others;
  return [
    drawn.length ? make("ol.messages", {}, drawn) : null,
    fewer > 0
      ? make(
          "p.quiet",
          {},
          `${many(fewer, "message")} of the request before ${fewer === 1 ? "is" : "are"} not in this one.`,
        )
      : null,
    typeof prompt === "string" ? long([prompt, 0], { label: "prompt" }) : null,
    make("h3", {}, "Settings"),
    make(
      "dl.settings",
      {},
      Object.entries(settings).flatMap(([name, value]) => {
        const changed = then && JSON.stringify(then[name]) !== JSON.stringify(value);
        return [
          make(
            "dt",
            {},
            shown(name),
            changed ? make("span.mark.is-changed", {}, name in then ? "changed" : "new") : null,
          ),
          make(
            "dd",
            {},
            long([typeof value === "string" ? value : JSON.stringify(value, null, 2), 0], {
              className: "code",
              label: name,
            }),
          ),
        ];
      }),
    ),
  ].filter(Boolean);
};

let view = "read";

const views = (name, whole, read) => {
  const body = make("div");
  const bar = make("div.tabs", { role: "group", "aria-label": `${name}: how it is shown` });
  const choose = (which) => {
    for (const each of bar.children) each.setAttribute("aria-pressed", String(each.dataset.view === which));
    const nodes = which === "read" ? read() : null;
    body.replaceChildren(...(nodes || whole()));
  };
  const pick = (which, words) =>
    button(
      words,
      () => {
        view = which;
        choose(which);
      },
      { "data-view": which },
    );
  bar.append(pick("read", "To read"), pick("whole", "As it was"));
  choose(view);
  return [bar, body];
};

const exchange = (source, run, each, before) => {
  const was = each.before === null ? null : (before[each.before] ?? null);
  const name = `${each.phase || "?"}, attempt ${each.attempt}`;
  const exact = (seq, words) =>
    source.exact ? link(words, source.exact(run, seq), { download: "", class: "act" }) : null;
  const whole = () => [
    was === null
      ? make("p.quiet", {}, "The first request of this phase: there is none before it to compare with.")
      : make(
          "p.quiet",
          {},
          make("ins", {}, "new"),
          " ",
          make("del", {}, "gone"),
          " since the request before of this phase",
        ),
    make(
      "pre.exact",
      { dir: "auto", tabindex: "0", role: "region", "aria-label": `Request, ${name}, as sent` },
      was === null ? shown(each.request) : marked(each.request, was, each.marks),
    ),
  ];
  const answer = () => [
    make(
      "pre.exact",
      { dir: "auto", tabindex: "0", role: "region", "aria-label": `Response, ${name}, as received` },
      shown(each.response),
    ),
  ];
  const tidy = () => {
    const found = parsed(each.response);
    return found === null
      ? null
      : [long([JSON.stringify(found, null, 2), 0], { className: "code", label: "response" })];
  };
  return make(
    "article.exchange",
    { "aria-label": `Exchange, ${name}`, id: `request-${each.seq}`, tabindex: "-1" },
    make(
      "h2",
      {},
      "Request ",
      make(
        "small",
        {},
        make("bdi", {}, shown(`${each.phase} · ${each.model}`)),
        each.attempt > 1 ? ` · attempt ${each.attempt}` : "",
      ),
    ),
    make("p.path", {}, make("code", {}, "POST ", shown(each.path))),
    line(
      "facts-line",
      `${number(each.bytes[0])} bytes`,
      each.odd ? "not all of it is UTF-8: odd bytes are shown as \\xNN" : "",
      exact(each.seq, "save as sent"),
    ),
    views("Request", whole, () => readable(each.request, was)),
    make("h2", {}, "Response"),
    line(
      "facts-line",
      each.status === null ? "no response" : `status ${each.status}`,
      each.seconds === null ? "" : duration(each.seconds),
      each.response === null ? "" : `${number(each.bytes[1])} bytes`,
      each.cut ? "cut at a stop" : "",
      each.response !== null && each.answered !== null ? exact(each.answered, "save as received") : null,
    ),
    each.error ? make("p.why", {}, shown(each.error)) : null,
    each.response
      ? views("Response", answer, tidy)
      : make("p.quiet", {}, each.answered === null ? "None is on record." : "It has no body on record."),
  );
};

// `look.view`: "whole" shows bodies as they were, with what changed; `look.seq`: the request to go to.
export const wirePage = async (place, source, id, step, look = {}) => {
  if (look.view) view = look.view;
  else if (look.seq) view = "read";
  const found = await source.wire(id, step);
  const at = found.steps.indexOf(Number(step));
  const to = (n, words) =>
    n === undefined ? null : link(words, `#/runs/${encodeURIComponent(id)}/wire/${n}`, { class: "act" });
  place.replaceChildren(
    make(
      "header.run-head",
      {},
      make(
        "p.crumbs",
        {},
        source.live ? [link("Runs", "#/"), " / "] : null,
        link(id, `#/runs/${encodeURIComponent(id)}/step/${step}`),
      ),
      make("h1", { tabindex: "-1" }, `Wire of step ${step}`),
      make("p.quiet", {}, "Bodies exactly as they were sent and received. Headers are not on record."),
      make(
        "nav.pager",
        { "aria-label": "Steps" },
        to(found.steps[at - 1], "← step before"),
        link("back to the run", `#/runs/${encodeURIComponent(id)}/step/${step}`, { class: "act" }),
        to(found.steps[at + 1], "next step →"),
      ),
    ),
    ...(found.exchanges.length
      ? found.exchanges.map((each) => exchange(source, id, each, found.before))
      : [make("p", {}, "This step asked no model.")]),
  );
  document.title = `Wire of step ${step} · Plait`;
  const wanted = look.seq && found.exchanges.length > 1 && document.getElementById(`request-${look.seq}`);
  if (wanted) setTimeout(() => wanted.scrollIntoView({ block: "start" }));
};
