// The page to talk to agents: conversations at the side, the talk in the middle, the composer below.
import { doing, field } from "./acts.js";
import { Composer } from "./composer.js";
import { showCaller } from "./caller.js";
import { STATES, button, flat, line, link, make, problem, shown, when } from "./dom.js";
import { keys } from "./keys.js";
import { chat, server } from "./source.js";
import { theme } from "./theme.js";
import { Turn, earlierTurn, sending } from "./turn.js";

const POLL = 10_000;
const main = document.getElementById("main"),
  side = document.getElementById("side");
let agents = [],
  talk = null,
  known = "";

const stored = (name, value) => {
  try {
    if (value === undefined) return sessionStorage.getItem(name) || "";
    if (value) sessionStorage.setItem(name, value);
    else sessionStorage.removeItem(name);
  } catch {
    /* without storage a draft is lost with the page */
  }
  return "";
};
const place = () => {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  try {
    return { session: decodeURIComponent(path), agent: new URLSearchParams(query).get("agent") };
  } catch {
    return { session: path, agent: null };
  }
};

// -- the conversation in the middle

class Talk {
  constructor(session, agent) {
    Object.assign(this, { session, turns: [], has: false });
    this.turnPlace = make("div.turns");
    this.earlier = make("div");
    this.head = make("header.talk-head");
    this.notice = make("p.lost", { role: "status" });
    const draft = (this.draft = `plait-draft ${session}`);
    this.composer = new Composer({
      send: (message) => this.send(message),
      stop: () => doing(this.composer.wrong, () => this.stop()),
      draft: { set: (text) => stored(draft, text) },
    });
    this.agent = make(
      "select", { id: "agent", "aria-label": "Agent" },
      agents.map((each) => make("option", { value: each.name }, each.name)),
    );
    if (agents.some((each) => each.name === agent)) this.agent.value = agent;
    this.agent.hidden = agents.length < 2;
    this.agent.addEventListener("change", () => this.drawHead());
    this.composer.left.prepend(this.agent);
    this.composer.takeDrops(main);
    main.replaceChildren(
      make("div.talk", {}, this.head, this.earlier, this.turnPlace, this.notice), this.composer.place,
    );
    this.composer.put(stored(draft));
  }

  async open() {
    if (this.session) await this.refresh();
    else this.drawHead();
    const last = this.turns.at(-1);
    if (last && agents.some((each) => each.name === last.version.agent)) this.agent.value = last.version.agent;
    scrollTo(0, this.session ? document.documentElement.scrollHeight : 0);
    if (matchMedia("(min-width: 56rem)").matches) this.composer.area.focus({ preventScroll: true });
  }

  drawHead() {
    if (this.data) {
      document.title = `${flat(this.data.title, 60)} · Plait`;
      const menu = make(
        "div.talk-acts",
        {},
        button("Rename", () => rename(this), { class: "act" }),
        link(
          "Markdown", chat.exported(this.session, "markdown"),
          { class: "act", download: "conversation.md", "aria-label": "Download as Markdown" },
        ),
        link(
          "JSON", chat.exported(this.session, "json"),
          { class: "act", download: "conversation.json", "aria-label": "Download as JSON" },
        ),
        button("Delete", () => remove(this), { class: "act refuse" }),
      );
      this.head.replaceChildren(make("h1", { tabindex: "-1" }, make("bdi", {}, shown(this.data.title))), menu);
      return;
    }
    document.title = "Chat · Plait";
    const agent = agents.find((each) => each.name === this.agent.value);
    this.head.replaceChildren(
      ...(agent
        ? [
            make("h1", { tabindex: "-1" }, "Talk to ", make("bdi", {}, shown(agent.name))),
            make("p.lede", {}, shown(agent.description)),
            line("facts-line", make("bdi", {}, shown(agent.loop)), make("bdi", {}, shown(agent.model))),
            make(
              "p.quiet", {},
              "Files can be attached, pasted or dropped here. Everything that is said is on record as a run.",
            ),
          ]
        : []),
    );
  }

  // Reads the conversation again, and draws what has changed.
  async refresh() {
    const data = await chat.turns(this.session);
    if (talk !== this) return;
    this.keep(() => {
      this.data = data;
      for (const [i, each] of data.turns.entries()) {
        const turn = this.turns[i];
        if (turn && turn.data.root === each.root) turn.update(each, turn.data.run === each.run ? turn.run : each.run);
        else {
          turn?.leave();
          turn?.place.remove();
          this.turns[i] = new Turn(this, each);
          this.turnPlace.insertBefore(this.turns[i].place, this.turnPlace.children[i] || null);
        }
      }
      for (const each of this.turns.splice(data.turns.length)) {
        each.leave();
        each.place.remove();
      }
      this.turns.at(-2)?.draw(); // it is the last one no more
      this.turnPlace.querySelectorAll(".sending:not(.failed)").forEach((each) => each.remove());
      this.earlier.replaceChildren(...data.earlier.map(earlierTurn));
      this.drawHead();
      this.changed();
    });
  }

  isLast(turn) {
    return turn.data.root === this.data.turns.at(-1)?.root && turn.data.session === this.session;
  }

  changed() {
    this.composer.going(this.turns.at(-1)?.version.status);
  }

  lost(gone) {
    this.notice.textContent = gone ? "The connection is lost; trying again." : "";
  }

  // Does what changes heights; who reads the end stays there, and nobody else is moved.
  keep(work) {
    const page = document.documentElement;
    const follows = page.scrollHeight - innerHeight - scrollY < 90;
    work();
    if (follows) scrollTo({ top: page.scrollHeight, behavior: "instant" });
  }

  async send({ text, files, chosen }) {
    const shownTurn = sending(text, chosen);
    this.composer.put("");
    stored(this.draft, text); // until the server has it, a reload must not lose it
    this.turnPlace.append(shownTurn.place);
    scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    const [session, after] = [this.session || null, this.turns.at(-1)?.run || null];
    const body = { agent: this.agent.value, text, files, session, after };
    const attempt = async () => {
      shownTurn.place.classList.remove("failed");
      try {
        const got = await chat.act("messages", body);
        stored(this.draft, this.composer.area.value);
        if (talk !== this) return;
        if (got.session !== this.session) location.hash = `#/${encodeURIComponent(got.session)}`;
        else await this.refresh();
        list();
      } catch (error) {
        shownTurn.place.classList.add("failed");
        if (error.status === 409) await this.refresh().catch(() => {});
        body.after = this.turns.at(-1)?.run || null;
        this.keep(() =>
          shownTurn.fail(error, attempt, () => {
            shownTurn.place.remove();
            this.composer.put(text, chosen);
            this.composer.area.focus();
          }),
        );
      }
    };
    await attempt();
  }

  async stop() {
    const turn = this.turns.at(-1);
    await server.cancel(turn.run);
    if (turn.version.status === "waiting") await this.refresh();
  }

  async act(what, turn) {
    await chat.act(what, { session: this.session, run: turn.run });
    await this.refresh();
  }

  // Edits an earlier message: it begins a branch, and this conversation stays as it is.
  edit(turn) {
    const composer = new Composer({
      label: "The message, edited",
      stop: () => {},
      send: async (message) => {
        const { text, files } = message;
        const kept = composer.kept.map((each) => each.digest);
        const body = { agent: this.agent.value, text, files, session: this.session, edits: turn.run, kept };
        const got = await chat.act("messages", body);
        location.hash = `#/${encodeURIComponent(got.session)}`;
        list();
      },
    });
    composer.area.id = "edited";
    composer.choose.id = "edited-files";
    composer.kept = [...turn.version.files];
    const before = [...turn.you.childNodes];
    composer.sender.textContent = "Send as a new branch";
    composer.place.querySelector(".buttons").prepend(
      button("Close", () => turn.you.replaceChildren(...before)),
    );
    turn.you.replaceChildren(composer.place);
    composer.put(turn.version.question);
    composer.area.focus();
  }

  leave() {
    for (const each of this.turns) each.leave();
  }
}

const dialogOf = (title, ...inside) => {
  const dialog = make(
    "dialog.small", { "aria-labelledby": "dialog-title" }, make("h2", { id: "dialog-title", tabindex: "-1" }, title),
    inside,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
};

const rename = (of) => {
  const title = make(
    "input", { id: "title", type: "text", value: of.data.title, maxlength: 200, required: true, autocomplete: "off" },
  );
  const form = make(
    "form", {}, field("Title", title),
    make(
      "div.buttons", {}, make("button.main-act", { type: "submit" }, "Rename"), button("Close", () => dialog.close()),
    ),
  );
  const dialog = dialogOf("Rename the conversation", form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    doing(form, async () => {
      await chat.act("title", { session: of.session, title: title.value });
      dialog.close();
      await Promise.all([of.refresh(), list()]);
    });
  });
  title.select();
};

const remove = (of) => {
  const form = make("form");
  const dialog = dialogOf(
    "Delete the conversation?",
    make("p", {}, "This deletes its runs from the journal, for everybody. Branches of it stay."),
    form,
  );
  const sure = button(
    "Delete",
    () =>
      doing(form, async () => {
        await chat.act("delete", { session: of.session });
        dialog.close();
        location.hash = "#/";
        await list();
      }),
    { class: "main-act" },
  );
  form.append(make("div.buttons", {}, sure, button("Close", () => dialog.close())));
};

// -- the conversations at the side

const search = make(
  "input",
  { id: "search", type: "search", placeholder: "Search", "aria-label": "Search the conversations", autocomplete: "off" },
);
const names = make("ul.talks"),
  listWrong = make("div"),
  more = button("More", () => list(true), { class: "act", hidden: true });
const toggle = button(
  "☰", () => drawer(!side.classList.contains("open")),
  { class: "drawer", "aria-label": "Conversations", title: "Conversations", "aria-expanded": "false", "aria-controls": "side" },
);
const drawer = (opens) => {
  side.classList.toggle("open", opens);
  toggle.setAttribute("aria-expanded", String(opens));
  if (opens) search.focus();
};

const entry = (each) =>
  make(
    "li",
    {},
    link(
      "", `#/${encodeURIComponent(each.session)}`, { "aria-current": talk?.session === each.session ? "page" : null },
    ),
  );
let before = 0,
  asking = 0;
async function list(further = false) {
  const mine = ++asking;
  let found;
  try {
    found = await chat.list(search.value.trim(), further ? before : 0);
  } catch (error) {
    listWrong.replaceChildren(problem(error));
    return;
  }
  if (mine !== asking) return;
  listWrong.replaceChildren();
  before = found.conversations.at(-1)?.n || 0;
  more.hidden = !found.more;
  const drawn = found.conversations.map((each) => {
    const item = entry(each),
      state = ["answered", "stopped"].includes(each.status) ? "" : STATES[each.status]?.[1] || each.status;
    item.firstChild.append(
      make("span.talk-title", {}, shown(flat(each.title, 80) || "(no text)")),
      line(
        "facts-line", make("bdi", {}, shown(each.agent)),
        state ? make("span", { class: `state-word is-${each.status}` }, state) : "", when(each.updated),
      ),
    );
    return item;
  });
  if (further) names.append(...drawn);
  else {
    const all = JSON.stringify(found.conversations) + (talk?.session || "");
    const none = make("li.quiet.none", {}, search.value ? "None has these words." : "None yet.");
    if (all !== known) names.replaceChildren(...(drawn.length ? drawn : [none]));
    known = all;
    const mine = found.conversations.find((each) => each.session === talk?.session);
    if (mine && talk.n && mine.n !== talk.n) talk.refresh().catch(() => {});
    if (mine) talk.n = mine.n;
  }
}

const open = async () => {
  // Links of steps lead to pages of the viewer.
  if (location.hash.startsWith("#/runs/")) return location.replace(`./${location.hash}`);
  const { session, agent } = place();
  document.querySelectorAll("dialog").forEach((each) => each.close());
  drawer(false);
  talk?.leave();
  const mine = (talk = new Talk(session, agent || talk?.agent.value));
  main.setAttribute("aria-busy", "true");
  try {
    await mine.open();
  } catch (error) {
    if (talk === mine) mine.head.replaceChildren(
      make("h1", { tabindex: "-1" }, "That did not work"), problem(error),
      make("p", {}, link("New conversation", "#/")),
    );
  }
  if (talk === mine) main.removeAttribute("aria-busy");
  list();
};

const fresh = () => {
  if (place().session) location.hash = "#/";
  else talk?.composer.area.focus();
  drawer(false);
};
const look = theme();
const pressed = keys({
  live: true,
  dark: look.turn,
  page: () => null,
  where: () => ({}),
  own: {
    n: fresh,
    "/": () => {
      if (getComputedStyle(toggle).display !== "none") drawer(true);
      search.focus();
    },
  },
});
document.getElementById("tools").append(
  toggle, look.control, button("?", pressed.help, { "aria-label": "Keys", title: "Keys" }),
);
showCaller(server, document.getElementById("tools"));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
let typing = 0;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(list, 200);
});
side.append(
  button("New conversation", fresh, { class: "main-act" }), search,
  make("nav", { "aria-label": "Conversations" }, names, more), listWrong,
);
side.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && side.classList.contains("open")) {
    drawer(false);
    toggle.focus();
  }
});
addEventListener("hashchange", open);
setInterval(() => !document.hidden && !search.value && list(), POLL);
document.addEventListener("visibilitychange", () => !document.hidden && list());
try {
  ({ agents } = await chat.agents());
  await open();
} catch (error) {
  main.replaceChildren(problem(error));
}
