// The page to talk to agents: conversations at the side, the talk in the middle, the composer below.
import { doing, field, submitting } from "./acts.js";
import { showCaller } from "./caller.js";
import { Composer, sendTo } from "./composer.js";
import { STATES, bdi, button, closeButtons, flat, line, openDialog, problem, shown, when } from "./dom.js";
import { html } from "./html.js";
import { keys } from "./keys.js";
import { chat, server } from "./source.js";
import { theme } from "./theme.js";
import { Turn, earlierTurn, sending } from "./turn.js";

const POLL = 10_000;
const main = document.getElementById("main"),
  side = html`<aside id="side" class="side" aria-label="Conversations"></aside>`,
  tools = document.getElementById("tools");
const frame = html`<div class="chat">${side}</div>`;
main.replaceWith(frame);
frame.append(main);
document.querySelector('nav.pages a[href="chat"]').setAttribute("aria-current", "page");
let agents = [],
  recent = [],
  talk = null,
  known = "";

// Without storage a draft is lost with the page.
const storage = (work) => {
  try {
    return work(sessionStorage);
  } catch {
    return "";
  }
};
const keepDraft = (session, text) => storage((kept) => kept.setItem(`plait-draft ${session}`, text));
const addressOf = (session) => `#/${encodeURIComponent(session)}`;
const place = () => {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return Object.fromEntries(new URLSearchParams(`${query}&session=${path}`));
};
const scrollToEnd = () => scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });

// -- the conversation in the middle

class Talk {
  constructor(session, agent) {
    Object.assign(this, { session, turns: [] });
    this.place = html`<div></div>`;
    this.earlier = html`<div></div>`;
    this.head = html`<header class="talk-head"></header>`;
    this.notice = html`<p class="lost" role="status"></p>`;
    this.composer = new Composer({
      onSend: (message) => this.send(message),
      onStop: () => doing(this.composer.wrong, () => this.stop()),
      onChange: (text) => keepDraft(session, text),
    });
    const options = agents.map((each) => html`<option value=${each.name}>${each.name}</option>`);
    this.agent = html`<select id="agent" aria-label="Agent" onchange=${() => this.drawHead()}>${options}</select>`;
    this.agent.hidden = agents.length < 2;
    this.choose(agent);
    this.composer.left.prepend(this.agent);
    this.composer.takeDrops(main);
    const middle = html`<div class="talk">${this.head}${this.earlier}${this.place}${this.notice}</div>`;
    main.replaceChildren(middle, this.composer.place);
    this.composer.put(storage((kept) => kept.getItem(`plait-draft ${session}`)) || "");
  }

  choose(agent) {
    if (agents.some((each) => each.name === agent)) this.agent.value = agent;
  }

  async open() {
    if (this.session) await this.refresh();
    else this.drawHead();
    this.choose(this.turns.at(-1)?.version.agent);
    scrollTo(0, this.session ? document.documentElement.scrollHeight : 0);
    if (matchMedia("(min-width: 56rem)").matches) this.composer.area.focus({ preventScroll: true });
  }

  drawHead() {
    const { data, session } = this;
    const agent = agents.find((each) => each.name === this.agent.value);
    document.title = data ? `${flat(data.title, 60)} · Plait` : "Chat · Plait";
    if (data) {
      const download = (words) => html`<a class="act" href=${chat.exported(session, words.toLowerCase())} download>
        Download as ${words}</a>`;
      this.head.replaceChildren(html`<h1 tabindex="-1"><bdi>${shown(data.title)}</bdi></h1><div class="talk-acts">
        <button type="button" class="act" onclick=${() => rename(this)}>Rename</button>
        ${download("Markdown")}${download("JSON")}
        <button type="button" class="act danger" onclick=${() => remove(this)}>Delete</button></div>`);
    } else if (agent)
      this.head.replaceChildren(html`<h1 tabindex="-1">Talk to <bdi>${shown(agent.name)}</bdi></h1>
        <p class="lede">${shown(agent.description)}</p>
        ${line("facts-line", `Loop ${agent.loop}`, bdi(agent.model))}
        <p class="quiet">Files can be attached, pasted or dropped here.
          Everything is kept on record: you can look into each answer.</p>
        ${recent.length > 0 && html`<section class="recent"><h2>Continue</h2>
          <ul class="talks">${recent.slice(0, 3).map(entry)}</ul></section>`}`);
  }

  // Reads the conversation again, and draws what has changed.
  async refresh() {
    const data = await chat.turns(this.session);
    if (talk !== this) return;
    this.keep(() => {
      this.data = data;
      for (const [i, each] of data.turns.entries()) {
        const turn = this.turns[i];
        if (turn?.data.root === each.root) turn.update(each, turn.data.run === each.run ? turn.run : each.run);
        else {
          turn?.remove();
          this.turns[i] = new Turn(this, each);
          this.place.insertBefore(this.turns[i].place, this.place.children[i] || null);
        }
      }
      for (const each of this.turns.splice(data.turns.length)) each.remove();
      this.turns.at(-2)?.draw(); // it is the last one no more
      this.place.querySelectorAll(".sending:not(.failed)").forEach((each) => each.remove());
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

  // A message that came after the last step of a run is the draft of the next one.
  offer(late) {
    if (!late.length || this.composer.area.value) return;
    this.composer.put(late.map((each) => each.text).join("\n"));
    this.notice.textContent = "The agent had ended before it read this: send it as the next message.";
  }

  lost(gone) {
    this.notice.textContent = gone ? "The connection is lost; trying again." : "";
  }

  // Does what changes heights; who reads the end stays there, and nobody else is moved.
  keep(work) {
    const follows = document.documentElement.scrollHeight - innerHeight - scrollY < 90;
    work();
    if (follows) scrollToEnd();
  }

  async send({ text, files, chosen }) {
    const going = this.turns.at(-1);
    if (["running", "queued"].includes(going?.version.status)) {
      await sendTo(server, going.run, { text, chosen });
      this.composer.put("");
      await going.drawSent();
      return;
    }
    const turn = sending(text, chosen);
    this.composer.put("");
    keepDraft(this.session, text); // until the server has it, a reload must not lose it
    this.place.append(turn.place);
    scrollToEnd();
    const back = () => {
      turn.place.remove();
      this.composer.put(text, chosen);
      this.composer.area.focus();
    };
    const body = { agent: this.agent.value, text, files, session: this.session || null, after: this.turns.at(-1)?.run };
    const attempt = async () => {
      turn.place.classList.remove("failed");
      try {
        const got = await chat.act("messages", body);
        keepDraft(this.session, this.composer.area.value);
        if (talk !== this) return;
        if (got.session !== this.session) location.hash = addressOf(got.session);
        else await this.refresh();
        list();
      } catch (error) {
        turn.place.classList.add("failed");
        if (error.status === 409) await this.refresh().catch(() => {});
        body.after = this.turns.at(-1)?.run;
        this.keep(() => turn.fail(error, attempt, back));
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

  // Edits a message: this begins another conversation, and this one stays as it is.
  edit(turn) {
    const onSend = async ({ text, files, kept }) => {
      const body = { agent: this.agent.value, text, files, session: this.session, edits: turn.run, kept };
      location.hash = addressOf((await chat.act("messages", body)).session);
      list();
    };
    const label = "The message, edited";
    const composer = new Composer({ onSend, id: "edited", label, words: "Send" });
    const before = [...turn.you.childNodes];
    const stays = this.isLast(turn) ? "This message stays" : "Your later messages stay";
    composer.buttons.prepend(button("Cancel", () => turn.you.replaceChildren(...before)));
    turn.you.replaceChildren(composer.place, html`<p class="hint">${stays} in the earlier version.</p>`);
    composer.put(turn.version.question, turn.version.files);
    composer.area.focus();
  }

  leave() {
    for (const each of this.turns) each.leave();
  }
}

// Asks before something is done: `work` does what the main button says, `then` follows when the dialog is closed.
const ask = (title, inside, words, look, work, then) => {
  const submit = submitting(async () => {
    await work();
    dialog.close();
    await then();
  });
  const form = html`<form onsubmit=${submit}>${inside}${closeButtons(words, look)}</form>`;
  const dialog = openDialog("small", title, form);
};

const rename = (of) => {
  const title = html`<input id="title" type="text" value=${of.data.title} maxlength="200" required autocomplete="off">`;
  const work = () => chat.act("title", { session: of.session, title: title.value });
  ask("Rename the conversation", field("Title", title), "Rename", "", work, () => Promise.all([of.refresh(), list()]));
  title.select();
};

const remove = (of) => {
  const words = html`<p>This deletes the conversation and its runs for everybody who can see them.
    It can't be undone. Edited versions stay.</p>`;
  const work = () => chat.act("delete", { session: of.session });
  ask("Delete the conversation?", words, "Delete", "danger", work, () => {
    recent = recent.filter((each) => each.session !== of.session);
    location.hash = "#/";
    return list();
  });
};

// -- the conversations at the side

let typing = 0;
const typed = () => {
  clearTimeout(typing);
  typing = setTimeout(list, 200);
};
const search = html`<input id="search" type="search" placeholder="Search" aria-label="Search the conversations"
  autocomplete="off" oninput=${typed}>`;
const names = html`<ul class="talks"></ul>`,
  wrong = html`<div></div>`,
  more = button("More", () => list(true), { class: "act", hidden: true });
const toggle = html`<button type="button" class="drawer" aria-expanded="false" aria-controls="side"
  onclick=${() => drawer(true)}><span aria-hidden="true">☰</span>Conversations</button>`;
const closer = button("Close", () => history.back(), { class: "act closer", "aria-label": "Close the conversations" });
const narrow = matchMedia("(max-width: 55.99rem)");
const isOpen = () => side.classList.contains("open");
// On a narrow page the list covers the rest; it is an entry of the history, so that Back closes it.
const drawer = (opens) => {
  const changes = opens !== isOpen();
  if (opens) history.pushState(null, "");
  side.classList.toggle("open", opens);
  toggle.setAttribute("aria-expanded", String(opens));
  for (const each of [main, tools.parentElement]) each.inert = opens;
  if (changes) (opens ? closer : toggle).focus();
};
const go = (to) => (isOpen() ? location.replace(to) : location.assign(to));

const entry = (each) => {
  const state = ["answered", "stopped"].includes(each.status) ? "" : STATES[each.status]?.[1] || each.status;
  const word = state && html`<span class="state-word is-${each.status}">${state}</span>`;
  const edited = each.edited && "edited version";
  return html`<li><a href=${addressOf(each.session)} aria-current=${talk?.session === each.session && "page"}>
    <span class="talk-title">${shown(flat(each.title, 80) || "(no text)")}</span>
    ${line("facts-line", html`<bdi>${shown(each.agent)}</bdi>`, edited, word, when(each.updated))}</a></li>`;
};
let before = 0,
  asking = 0;
async function list(further = false) {
  const mine = ++asking;
  let found;
  try {
    found = await chat.list(search.value.trim(), further ? before : 0);
  } catch (error) {
    wrong.replaceChildren(problem(error));
    return;
  }
  if (mine !== asking) return;
  wrong.replaceChildren();
  const { conversations } = found;
  before = conversations.at(-1)?.n || 0;
  if (!further && !search.value) recent = conversations;
  more.hidden = !found.more;
  const drawn = conversations.map(entry);
  if (further) return names.append(...drawn);
  const all = JSON.stringify(conversations) + (talk?.session || "");
  const none = html`<li class="quiet none">${search.value ? "None has these words." : "None yet."}</li>`;
  if (all !== known) names.replaceChildren(...(drawn.length ? drawn : [none]));
  if (all !== known && talk && !talk.session) talk.drawHead();
  known = all;
  const current = conversations.find((each) => each.session === talk?.session);
  if (!current) return;
  if (talk.n && current.n !== talk.n) talk.refresh().catch(() => {});
  talk.n = current.n;
}

const open = async () => {
  // Links of steps lead to pages of the viewer.
  if (location.hash.startsWith("#/runs/")) return location.replace(`./${location.hash}`);
  const { session, agent } = place();
  document.querySelectorAll("dialog").forEach((each) => each.close());
  drawer(false);
  talk?.leave();
  const mine = (talk = new Talk(session, agent || talk?.agent.value || recent[0]?.agent));
  main.setAttribute("aria-busy", "true");
  try {
    await mine.open();
  } catch (error) {
    mine.head.replaceChildren(html`<h1 tabindex="-1">That did not work</h1>${problem(error)}
      <p><a href="#/">New conversation</a></p>`);
  }
  if (talk === mine) main.removeAttribute("aria-busy");
  list();
};

const fresh = () => (place().session ? go("#/") : isOpen() ? history.back() : talk?.composer.area.focus());
const find = () => {
  if (narrow.matches && !isOpen()) toggle.click();
  search.focus();
};
const look = theme();
const own = { n: fresh, "/": find };
const pressed = keys({ live: true, dark: look.turn, page: () => null, where: () => ({}), own });
tools.append(toggle, look.control, button("?", pressed.help, { "aria-label": "Help", title: "Help" }));
showCaller(server, tools);
side.append(html`${closer}${button("New conversation", fresh, { class: "main-act" })}${search}
  <nav aria-label="Conversations">${names}${more}</nav>${wrong}`);
side.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && isOpen()) history.back();
});
side.addEventListener("click", (event) => {
  const to = event.target.closest("a");
  if (!to || !isOpen() || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  to.hash === location.hash ? history.back() : go(to.href);
});
addEventListener("popstate", () => drawer(false));
narrow.addEventListener("change", () => drawer(false));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", open);
setInterval(() => !document.hidden && !search.value && list(), POLL);
document.addEventListener("visibilitychange", () => !document.hidden && list());
try {
  [{ agents }] = await Promise.all([chat.agents(), list()]);
  await open();
} catch (error) {
  main.replaceChildren(problem(error));
}
