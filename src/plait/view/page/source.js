// Where the pages have their data from: the server, or what this file itself holds.
import { findIn } from "./find.js";

export class Trouble extends Error {
  constructor(message, hint = "") {
    super(message);
    this.hint = hint;
  }
}

// Milliseconds after which a refused connection is tried again at first.
const RETRY = 1500;

// The value from the login. Each request sends it, because the cookie alone is not enough.
const pageSecret = (() => {
  try {
    return localStorage.getItem("plait-page") ?? "";
  } catch {
    return "";
  }
})();

const asked = async (path, options = {}) => {
  let answer;
  try {
    answer = await fetch(path, {
      credentials: "same-origin",
      ...options,
      headers: {
        accept: "application/json",
        ...(pageSecret ? { "x-plait-page": pageSecret } : {}),
        ...options.headers,
      },
    });
  } catch {
    throw new Trouble("The server can't be reached.", "Is `plait serve` still running?");
  }
  const body = await answer.json().catch(() => null);
  if (answer.ok) return body;
  if (answer.status === 401) {
    location.replace(`?login${location.hash}`);
    throw new Trouble("You are not logged in any more.");
  }
  const trouble = new Trouble(body?.error?.message || `The server said ${answer.status}.`);
  throw Object.assign(trouble, { status: answer.status, wait: Number(answer.headers.get("retry-after")) || 0 });
};
const path = (...parts) => `api/${parts.map(encodeURIComponent).join("/")}`;
const query = (values) =>
  new URLSearchParams(
    Object.entries(values)
      .flatMap(([name, value]) => [value].flat().map((each) => [name, each]))
      .filter(([, value]) => value !== "" && value !== null && value !== undefined),
  ).toString();
const post = (where, body) =>
  asked(where, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

let me = null;

export const server = {
  live: true,
  // Who uses the page: {name, roles, full, login}. Asked once.
  me: () => (me ??= asked(path("me"))),
  logout: async () => {
    await post("logout", {});
    localStorage.removeItem("plait-page");
    location.replace(location.pathname);
  },
  about: () => asked(path("about")),
  runs: (wanted) => asked(`${path("runs")}?${query(wanted)}`),
  run: (id) => asked(path("runs", id)),
  waterfall: (id, since) => asked(`${path("runs", id, "waterfall")}?${query({ since })}`),
  search: (id, words) => asked(`${path("runs", id, "search")}?${query({ words })}`),
  file: (id, file) => `${path("runs", id, "files", file)}${pageSecret ? `?${query({ page: pageSecret })}` : ""}`,
  text: (id, item, field, from) =>
    asked(`${path("runs", id, "text")}?${query({ item, field, from })}`).then((got) => [got.text, got.more]),
  wire: (id, step) => asked(`${path("runs", id, "wire")}?${query({ step })}`),
  exact: (id, seq) => `${path("runs", id, "wire", String(seq))}${pageSecret ? `?${query({ page: pageSecret })}` : ""}`,
  costs: (wanted) => asked(`${path("costs")}?${query(wanted)}`),
  sides: (a, b) => asked(`${path("sides")}?${query({ a, b })}`),
  comparisons: () => asked(path("comparisons")),
  // Its name is what somebody gave it: a path could not hold each.
  comparison: (name) => `comparison?${query({ name, page: pageSecret })}`,
  start: (body) => post("v1/runs", body),
  resume: (id, body) => post(`v1/runs/${encodeURIComponent(id)}/${"answer" in body ? "answer" : "resume"}`, body),
  fork: (id, body) => post(path("runs", id, "fork"), body),
  changeable: (id) => asked(path("runs", id, "change")),
  differences: (a, b, step = "") => asked(`${path("sides", "differences")}?${query({ a, b, step })}`),
  estimate: (body) => post(path("changes", "estimate"), body),
  beginChange: (body) => post(path("changes"), body),
  changes: () => asked(path("changes")),
  change: (name) => asked(path("changes", name)),
  turnChange: (name, how) => post(path("changes", name, how), {}),
  review: (wanted) => asked(`${path("review")}?${query(wanted)}`),
  datasets: () => asked(path("datasets")),
  dataset: (name) => asked(path("datasets", name)),
  datasetFile: (name) => `${path("datasets", name, "file")}${pageSecret ? `?${query({ page: pageSecret })}` : ""}`,
  addTask: (name, body) => post(path("datasets", name), body),
  changeTask: (name, body) => post(path("datasets", name, "task"), body),
  rating: (id) => asked(path("runs", id, "rating")),
  rate: (id, body) => post(path("runs", id, "rating"), body),
  cancel: (id) => post(`v1/runs/${encodeURIComponent(id)}/cancel`, {}),
  // Calls `onNews(data)` with what happens from `after` on; what comes back ends it. A page that is not seen listens
  // to nothing.
  // `writing(steps)` hears what models are writing, all of it each time.
  watch: (where, after, onNews, onConnection, writing = () => {}, more = {}) => {
    let events = null,
      seen = after,
      over = false,
      again = null,
      pause = RETRY;
    const open = () => {
      clearTimeout(again);
      if (events || over || document.hidden) return;
      const wanted = query({ after: seen, page: pageSecret, ...more });
      events = new EventSource(`api/${where}${wanted && `?${wanted}`}`);
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

const talks = path("conversations");
export const chat = {
  agents: () => asked(`${talks}/agents`),
  list: (words, before) => asked(`${talks}?${query({ words, before })}`),
  turns: (session) => asked(`${talks}/turns?${query({ session })}`),
  act: (what, body) => post(`${talks}/${what}`, body),
  // Addresses of files: pictures and downloads cannot send a header.
  file: (session, digest) => `${talks}/file?${query({ session, digest, page: pageSecret })}`,
  exported: (session, format) => `${talks}/export?${query({ session, format, page: pageSecret })}`,
};

// A file that holds one run: its requests are kept as what differs from the one before, and made again here.
export const sourceOfFile = (data) => {
  const requests = new Map();
  for (const each of data.wire) {
    let request = each.request;
    if (each.before !== null) {
      const before = requests.get(each.before);
      let at = 0;
      request = each.marks
        .map(([sign, what]) => {
          if (sign === "+") return what;
          const piece = sign === "=" ? before.slice(at, at + what) : "";
          at += what;
          return piece;
        })
        .join("");
    }
    requests.set(each.seq, request);
  }
  const whole = data.wire.map((each) => ({ ...each, request: requests.get(each.seq) }));
  return {
    live: false,
    run: async (id) => data.children[id] || data,
    waterfall: async () => ({ rows: data.waterfall, now: Math.max(0, ...data.waterfall.map((row) => row.end || row.at)) }),
    search: async (_, words) => findIn(data.steps, words),
    file: (id, file) => (data.children[id] || data).run.files.find((each) => each.id === file)?.content || null,
    wire: async (_, step) => {
      const exchanges = whole.filter((each) => each.step === Number(step));
      return {
        exchanges,
        before: Object.fromEntries(
          exchanges.filter((each) => each.before !== null).map((each) => [each.before, requests.get(each.before)]),
        ),
        steps: [...new Set(whole.map((each) => each.step))],
      };
    },
  };
};
