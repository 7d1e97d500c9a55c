// Where the pages have their data from: the server, or what this file itself holds.
import { withQuery } from "./dom.js";
import { findIn } from "./find.js";
import { kept } from "./theme.js";

export class Trouble extends Error {
  constructor(message, hint = "") {
    super(message);
    this.hint = hint;
  }
}

// Milliseconds after which a refused connection is tried again at first.
const RETRY = 1500;

// The value from the login. Each request sends it, because the cookie alone is not enough.
const pageSecret = kept("plait-page", "");

const asked = async (path, options = {}) => {
  const headers = { accept: "application/json", ...options.headers };
  if (pageSecret) headers["x-plait-page"] = pageSecret;
  const answer = await fetch(path, { credentials: "same-origin", ...options, headers }).catch(() => {
    throw new Trouble("The server can't be reached.", "Is `plait serve` still running?");
  });
  const body = await answer.json().catch(() => null);
  if (answer.ok) return body;
  if (answer.status === 401) {
    location.replace(`?login${location.hash}`);
    throw new Trouble("You are not logged in any more.");
  }
  const trouble = new Trouble(body?.error?.message || `The server said ${answer.status}.`);
  throw Object.assign(trouble, { status: answer.status, wait: Number(answer.headers.get("retry-after")) || 0 });
};
// An address that the browser opens itself, without the header.
const opened = (path, values = {}) => withQuery(path, { ...values, page: pageSecret });
const path = (...parts) => `api/${parts.map(encodeURIComponent).join("/")}`;
const get = (parts, values = {}) => asked(withQuery(path(...parts), values));
const post = (where, body) =>
  asked(where, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

let me = null;

export const server = {
  live: true,
  // Who uses the page: {name, roles, full, login}. Asked once.
  me: () => (me ??= get(["me"])),
  logout: async () => {
    await post("logout", {});
    localStorage.removeItem("plait-page");
    location.replace(location.pathname);
  },
  about: () => get(["about"]),
  runs: (wanted) => get(["runs"], wanted),
  run: (id) => get(["runs", id]),
  waterfall: (id, since) => get(["runs", id, "waterfall"], { since }),
  search: (id, words) => get(["runs", id, "search"], { words }),
  file: (id, file) => opened(path("runs", id, "files", file)),
  text: (id, item, field, from) =>
    get(["runs", id, "text"], { item, field, from }).then((got) => [got.text, got.more]),
  wire: (id, step) => get(["runs", id, "wire"], { step }),
  exact: (id, seq) => opened(path("runs", id, "wire", String(seq))),
  costs: (wanted) => get(["costs"], wanted),
  sides: (a, b) => get(["sides"], { a, b }),
  comparisons: () => get(["comparisons"]),
  // Its name is what somebody gave it: a path could not hold each.
  comparison: (name) => opened("comparison", { name }),
  resume: (id, body) => post(`v1/runs/${encodeURIComponent(id)}/${"answer" in body ? "answer" : "resume"}`, body),
  cancel: (id) => post(`v1/runs/${encodeURIComponent(id)}/cancel`, {}),
  // Messages to a run that goes on, and what became of them.
  sendTo: (id, text) => post(path("runs", id, "messages"), { text }),
  sent: (id) => get(["runs", id, "messages"]).then((got) => got.messages),
  cancelCall: (id, call) => post(path("runs", id, "calls", call, "cancel"), {}),
  fork: (id, body) => post(path("runs", id, "fork"), body),
  changeable: (id) => get(["runs", id, "change"]),
  differences: (a, b, step = "") => get(["sides", "differences"], { a, b, step }),
  estimate: (runs, filters) => post(withQuery(path("changes", "estimate"), filters), { runs }),
  beginChange: (body) => post(path("changes"), body),
  changes: () => get(["changes"]),
  change: (name) => get(["changes", name]),
  turnChange: (name, how) => post(path("changes", name, how), {}),
  review: (wanted) => get(["review"], wanted),
  datasets: () => get(["datasets"]),
  dataset: (name) => get(["datasets", name]),
  datasetFile: (name) => opened(path("datasets", name, "file")),
  addTask: (name, body) => post(path("datasets", name), body),
  changeTask: (name, body) => post(path("datasets", name, "task"), body),
  notes: () => get(["notes"]),
  changeNote: (body) => post(path("notes"), body),
  rating: (id) => get(["runs", id, "rating"]),
  rate: (id, body) => post(path("runs", id, "rating"), body),
  // Calls `onNews(data)` with what happens from `after` on; what comes back ends it. A page that is not seen listens
  // to nothing.
  // `writing(steps)` hears what models are writing, all of it each time.
  watch: (where, after, onNews, onConnection, writing = () => {}, more = {}) => {
    let [events, seen, over, again, pause] = [null, after, false, null, RETRY];
    const open = () => {
      clearTimeout(again);
      if (events || over || document.hidden) return;
      events = new EventSource(opened(`api/${where}`, { after: seen, ...more }));
      events.onmessage = (event) => {
        if (event.lastEventId !== "") seen = event.lastEventId;
        onConnection(false);
        onNews(JSON.parse(event.data));
      };
      events.addEventListener("writing", (event) => writing(JSON.parse(event.data).steps));
      events.addEventListener("over", () => {
        over = true;
        shut();
      });
      events.onopen = () => {
        pause = RETRY;
        onConnection(false);
      };
      events.onerror = () => {
        onConnection(events?.readyState !== EventSource.OPEN);
        if (events?.readyState !== EventSource.CLOSED) return;
        // The browser tries again by itself where a connection breaks, but not where the server has refused one.
        shut();
        again = setTimeout(open, pause);
        pause = Math.min(2 * pause, 60_000);
      };
    };
    const shut = () => {
      events?.close();
      events = null;
    };
    const turn = () => (document.hidden ? shut() : open());
    document.addEventListener("visibilitychange", turn);
    open();
    return () => {
      over = true;
      clearTimeout(again);
      document.removeEventListener("visibilitychange", turn);
      shut();
    };
  },
  watchRun: (id, after, onNews, onConnection, writing, more) =>
    server.watch(`runs/${encodeURIComponent(id)}/events`, after, onNews, onConnection, writing, more),
  watchRuns: (onNews, onConnection) => server.watch("events", null, onNews, onConnection),
};

export const chat = {
  agents: () => get(["conversations", "agents"]),
  list: (words, before) => get(["conversations"], { words, before }),
  turns: (session) => get(["conversations", "turns"], { session }),
  act: (what, body) => post(path("conversations", what), body),
  file: (session, digest) => opened(path("conversations", "file"), { session, digest }),
  exported: (session, format) => opened(path("conversations", "export"), { session, format }),
};

// A file that holds one run: its requests are kept as what differs from the one before, and made again here.
export const sourceOfFile = (data) => {
  const requests = new Map();
  for (const each of data.wire) {
    let from = 0;
    const before = requests.get(each.before);
    const pieces = each.marks.map(([sign, what]) => {
      if (sign === "+") return what;
      from += what;
      return sign === "=" ? before.slice(from - what, from) : "";
    });
    requests.set(each.seq, each.before === null ? each.request : pieces.join(""));
  }
  const whole = data.wire.map((each) => ({ ...each, request: requests.get(each.seq) }));
  return {
    live: false,
    run: async (id) => data.children[id] || data,
    waterfall: async () => {
      const ends = data.waterfall.map((row) => row.end || row.at);
      return { rows: data.waterfall, now: Math.max(0, ...ends) };
    },
    search: async (_, words) => findIn(data.steps, words),
    file: (id, file) => (data.children[id] || data).run.files.find((each) => each.id === file)?.content || null,
    wire: async (_, step) => {
      const exchanges = whole.filter((each) => each.step === Number(step));
      const before = exchanges.map((each) => each.before).filter((seq) => seq !== null);
      const bodies = Object.fromEntries(before.map((seq) => [seq, requests.get(seq)]));
      return { exchanges, before: bodies, steps: [...new Set(whole.map((each) => each.step))] };
    },
  };
};
