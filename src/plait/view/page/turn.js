// One turn of a conversation: the message, and the answer with its steps, questions and actions.
import { doing, waitPart } from "./acts.js";
import { Braid, askerOf, braidOptions, howAnswered } from "./braid.js";
import { drawSent, hasTaken, sentPlace } from "./composer.js";
import { announce, bdi, button, chip, flat, line, problem, shown, when } from "./dom.js";
import { html } from "./html.js";
import { Answer, copyButton, nodesOf } from "./markdown.js";
import { chat, server } from "./source.js";
import { long } from "./text.js";
import { drawTodo } from "./todo.js";
import { Trace } from "./trace.js";

// What is said of a run that ended in another way than with its answer.
const ENDS = {
  crashed: "The run crashed.",
  failed: "The agent gave up.",
  cancelled: "Stopped.",
  interrupted: "The server ended while this ran.",
  stopped: "Stopped at a limit.",
};
const FOLLOWED = ["running", "waiting", "interrupted", "queued"];

const runPage = (run) => `./#/runs/${encodeURIComponent(run)}`;
const said = (text, files = []) => html`<div class="said-by-you">
  ${text && long([text, 0], { className: "prose", label: "message" })}
  ${files.length > 0 && html`<ul class="files">${files}</ul>`}</div>`;
const attached = (session, file) => {
  const at = chat.file(session, file.digest), name = flat(file.name || file.kind, 100);
  return html`<li>${file.kind === "image" && html`<img src=${at} alt=${name} loading="lazy">`}
    <a href=${at} download=${name} target="_blank"><bdi>${shown(file.name || file.kind)}</bdi></a></li>`;
};
const now = (words) =>
  html`<span class="now"><span class="pulse" aria-hidden="true"></span><span class="doing">${words}</span></span>`;

export class Turn {
  // `page` is the conversation (`Talk` of chat.js), `data` the turn as the server describes it.
  constructor(page, data) {
    Object.assign(this, { page, answer: new Answer(), stop: null, waits: [] });
    this.you = html`<div class="you"></div>`;
    this.edits = html`<div class="turn-acts"></div>`;
    this.head = html`<h2 class="who"></h2>`;
    this.asks = html`<div class="asks"></div>`;
    this.how = html`<div></div>`;
    this.todo = html`<div></div>`;
    this.meanwhile = sentPlace();
    this.steps = html`<div></div>`;
    this.acts = html`<div class="turn-acts"></div>`;
    const { head, todo, meanwhile, answer, asks, how, steps, acts } = this;
    this.place = html`<article class="turn" aria-label="Message and answer">${this.you}
      <div>${head}${meanwhile}${todo}${answer.place}${asks}${how}${steps}${acts}</div></article>`;
    this.update(data);
  }

  // Takes the turn as the server describes it.
  update(data, run = data.run) {
    const before = this.version;
    this.data = data;
    this.version = data.versions.find((each) => each.run === run) || data.versions.at(-1);
    if (before?.run !== this.run) {
      this.leave();
      this.waits = [];
      this.answer.end("");
      this.asks.replaceChildren();
      this.todo.replaceChildren();
      this.todo.dataset.of = "";
      this.trace = new Trace(server, this.run);
      const describe = (name) => this.trace.run?.tools.find((each) => each.name === name)?.what;
      this.braid = new Braid(null, { ...braidOptions(server, this.run), describe }); // draws questions alone
      this.steps.replaceChildren(this.trace.place);
      const files = this.version.files.map((each) => attached(data.session, each));
      this.you.replaceChildren(said(this.version.question, files), this.edits);
    }
    this.trace.tell(this.version);
    this.draw();
    if (FOLLOWED.includes(this.version.status)) this.follow();
    else this.leave();
  }

  get run() {
    return this.version.run;
  }

  draw() {
    const { version, page, data } = this, is = version.status;
    const goes = is === "running" || is === "queued";
    if (!goes) this.answer.end(version.html);
    const ended = () => [is !== "answered" && chip(version), html`<span class="quiet">${when(version.updated)}</span>`];
    this.head.replaceChildren(
      html`<bdi>${shown(version.agent || "agent")}</bdi>${goes ? now(this.trace.doing) : ended()}`,
    );
    this.place.setAttribute("aria-busy", String(goes));

    const isLast = page.isLast(this);
    const control = (words, work, look = "main-act") => button(words, () => doing(this.how, work), { class: look });
    const retry = (look) => control("Retry", () => page.act("retry", this), look);
    const resume = () => server.resume(this.run, {}).then(() => page.refresh());
    const words = is === "stopped" && version.html ? "Answered early:" : ENDS[is];
    this.how.replaceChildren();
    if (words)
      this.how.append(html`<div class="end is-${is}">
        <p>${words} ${shown(version.reason)} ${shown(version.hint)}</p>
        <div class="buttons">${isLast && is === "stopped" && control("Continue", () => page.act("continue", this))}
          ${["cancelled", "interrupted", "crashed"].includes(is) && control("Resume", resume)}
          ${isLast && retry(null)}</div></div>`);

    const { versions, branches } = data,
      at = versions.indexOf(version),
      edited = branches.indexOf(data.session);
    const turnTo = (sign, label, other) => html`<button type="button" class="act" aria-label=${label} disabled=${!other}
      onclick=${() => page.keep(() => this.update(data, other.run))}>${sign}</button>`;
    const answers = () => html`${turnTo("‹", "Earlier answer", versions[at - 1])}
      <span class="quiet">Answer ${at + 1} of ${versions.length}</span>
      ${turnTo("›", "Later answer", versions[at + 1])}`;
    const branch = (sign, label, name) =>
      name && html`<a class="act" href="#/${encodeURIComponent(name)}" aria-label=${label}>${sign}</a>`;
    const others = () => html`${branch("‹", "Version before", branches[edited - 1])}
      <span class="quiet">Version ${edited + 1} of ${branches.length}</span>
      ${branch("›", "Next version", branches[edited + 1])}`;
    const edit = () => button("Edit", () => page.edit(this), { class: "act", "aria-label": "Edit this message" });
    this.edits.replaceChildren(html`${branches.length > 1 && others()}${!goes && edit()}`);
    this.acts.replaceChildren(html`${version.html && !goes && copyButton(() => version.text, "Copy the answer")}
      ${isLast && is === "answered" && retry("act")}${versions.length > 1 && answers()}
      <a class="act" href=${runPage(this.run)} aria-label="Details of this run">Details</a>`);
  }

  // Shows what happens in the run, until `leave`.
  async follow() {
    if (this.stop) return;
    let gone = false;
    this.stop = () => {
      gone = true;
    };
    const { page } = this;
    try {
      const found = await server.run(this.run);
      if (gone) return;
      this.may = found.may || {};
      page.keep(() => this.take(found));
      await this.drawSent();
      const take = (news) => page.keep(() => this.take(news));
      const write = (steps) => page.keep(() => this.write(steps));
      this.stop = server.watchRun(this.run, found.seq, take, (lost) => page.lost(lost), write, { answers: 1 });
    } catch (error) {
      this.how.replaceChildren(problem(error));
      this.stop = null;
    }
  }

  // News of the run.
  take(news) {
    this.trace.take(news);
    drawTodo(this.todo, this.trace.items.values());
    if (news.waiting) this.waits = news.waiting;
    if (this.meanwhile.childElementCount && hasTaken(news)) this.drawSent();
    const is = news.run?.status;
    if (is && is !== this.version.status) {
      this.version.status = is;
      if (is !== "running") announce(is === "waiting" ? "The agent waits for you." : `The run is ${is}.`);
      this.page.changed();
      if (is !== "waiting") this.page.refresh();
      if (this.meanwhile.childElementCount && !FOLLOWED.includes(is)) this.drawSent().then((late) => this.page.offer(late));
      if (FOLLOWED.includes(is)) this.draw();
    }
    this.say(this.isWriting ? "writes …" : this.trace.doing);
    this.drawAsks();
  }

  drawSent() {
    return drawSent(server, this.run, this.meanwhile, (work) => this.page.keep(work));
  }

  say(words) {
    const place = this.head.querySelector(".doing");
    if (place) place.textContent = flat(words, 140);
  }

  // What the models write just now.
  write(steps) {
    const step = steps.at(-1);
    this.isWriting = Boolean(step?.answer);
    if (!step || this.version.status !== "running") return;
    if (step.answer) this.answer.grow(step.answer);
    const thought = step.parts.at(-1)?.[1].trim().split("\n").at(-1);
    if (step.progress) this.say(step.progress.text);
    else if (this.isWriting) this.say("writes …");
    else if (thought) this.say(thought.slice(-140));
    else if (step.stage || step.seconds) this.say(`${this.trace.doing} ${step.stage || ""} ${step.seconds} s`);
  }

  // The forms of open questions, also of child runs. One that somebody is filling in stays as long as it is open.
  drawAsks() {
    const { items } = this.trace,
      open = new Set(this.waits.map((each) => each.item));
    for (const form of this.asks.querySelectorAll(".ask")) {
      const item = items.get(form.dataset.item), how = howAnswered(item);
      if (open.has(item.id) || (!item.told && this.version.status === "running")) continue; // its answer comes soon
      const about = flat(item.ask === "approval" && item.tool ? item.tool : item.text[0], 80);
      const said = !item.changed && item.told?.[0];
      const words = html`${how[0].toUpperCase()}${how.slice(1)}${item.by && [" by ", bdi(item.by)]}`;
      const facts = line("facts-line", words, bdi(about), said && bdi(flat(said, 200)));
      const receipt = html`<details class="receipt"><summary>${[...facts.childNodes]}</summary>
        ${this.braid.asked(item)}</details>`;
      form.replaceWith(item.told ? receipt : ""); // a run that was cancelled has no answer
    }
    for (const { item: id, question } of this.waits) {
      const item = items.get(id);
      if (!item || this.asks.querySelector(`[data-item="${CSS.escape(id)}"]`)) continue;
      const reopen = async () => {
        this.leave();
        await this.page.refresh();
        await this.follow();
      };
      const title = { question: [askerOf(item), " asks"], plan: "Approve this plan?" }[item.ask] || "Approve this call?";
      this.asks.append(html`<section class="ask" data-item=${id} aria-label="The agent asks">
        <h3>${title}</h3>${this.braid.asked(item)}
        ${waitPart(server, { run: this.run }, item, question, reopen, this.may)}</section>`);
    }
  }

  leave() {
    this.stop?.();
    this.stop = null;
  }

  remove() {
    this.leave();
    this.place.remove();
  }
}

// A turn that is on its way: the message, and what went wrong with it.
export const sending = (text, files) => {
  const head = html`<h2 class="who">${now("sends …")}</h2>`,
    how = html`<div></div>`;
  const place = html`<article class="turn sending">
    <div class="you">${said(text, files.map((each) => html`<li>${shown(each.name)}</li>`))}</div>
    <div>${head}${how}</div></article>`;
  const fail = (error, again, back) => {
    head.hidden = true;
    let left = Math.ceil(error.wait || 0);
    const retry = button("Retry", again, { class: "main-act" });
    how.replaceChildren(problem(error), html`<div class="buttons">${retry}${button("Back to the text", back)}</div>`);
    const tick = () => {
      retry.disabled = left > 0;
      retry.textContent = left > 0 ? `Retry in ${left} s` : "Retry";
      if (left-- > 0) setTimeout(tick, 1000);
    };
    tick();
  };
  return { place, fail };
};

export const earlierTurn = (each) => html`<article class="turn"><div class="you">${said(each.question)}</div>
  <div class="md">${nodesOf(each.html)}</div></article>`;
