// One turn of a conversation: the message, and the answer with its steps, questions and actions.
import { doing, waitForm } from "./acts.js";
import { announce, button, chip, flat, link, make, problem, shown, when } from "./dom.js";
import { Answer, copyButton, nodesOf } from "./markdown.js";
import { chat, server } from "./source.js";
import { long } from "./text.js";
import { Trace } from "./trace.js";

const GOING = ["running", "waiting", "interrupted", "queued"];
const WORDS = {
  crashed: "The run crashed.",
  failed: "The agent gave up.",
  cancelled: "Stopped.",
  interrupted: "The server ended while this ran.",
  stopped: "Stopped at a limit.",
  queued: "Waits for a worker.",
};

export const fileChips = (session, files) =>
  files.length
    ? make(
        "ul.files",
        {},
        files.map((file) => {
          const href = chat.file(session, file.digest);
          const name = make("bdi", {}, shown(file.name || file.kind));
          return make(
            "li",
            {},
            file.kind === "image" ? make("img", { src: href, alt: flat(file.name || "picture", 100), loading: "lazy" }) : null,
            make("a", { href, download: flat(file.name || "file", 100), target: "_blank" }, name),
          );
        }),
      )
    : null;

// What somebody said.
export const said = (text, ...more) =>
  make("div.said-by-you", {}, text ? long([text, 0], { className: "prose", label: "message" }) : null, more);

export class Turn {
  // `page` is the conversation: {keep(work), refresh(), act(what, body), edit(turn), isLast(turn), showsAgents}.
  constructor(page, data) {
    Object.assign(this, { page, answer: new Answer(), stop: null, waits: [] });
    this.you = make("div.you");
    this.head = make("h2.who");
    this.asks = make("div.asks");
    this.how = make("div.how");
    this.acts = make("div.turn-acts");
    this.tracePlace = make("div");
    this.place = make(
      "article.turn", { "aria-label": "Message and answer" }, this.you,
      make("div.reply", {}, this.head, this.answer.place, this.asks, this.how, this.tracePlace, this.acts),
    );
    this.update(data);
  }

  // Takes the turn as the server describes it.
  update(data, run = data.run) {
    const before = this.version;
    this.data = data;
    this.version = data.versions.find((each) => each.run === run) || data.versions.at(-1);
    if (before?.run !== this.version.run) {
      this.leave();
      this.waits = [];
      this.trace = new Trace(server, this.version.run);
      this.tracePlace.replaceChildren(this.trace.place);
      this.asks.replaceChildren();
      if (before) {
        this.place.querySelector(".md").remove();
        this.answer = new Answer();
        this.head.after(this.answer.place);
      }
      this.you.replaceChildren(said(this.version.question, fileChips(data.session, this.version.files)));
    }
    this.trace.tell(this.version);
    this.draw();
    if (GOING.includes(this.version.status)) this.follow();
    else this.leave();
  }

  get run() {
    return this.version.run;
  }

  get isGoing() {
    return ["running", "waiting", "queued"].includes(this.version.status);
  }

  draw() {
    const { version, page } = this;
    const is = version.status,
      goes = is === "running" || is === "queued";
    if (!goes) this.answer.end(version.html);
    this.head.replaceChildren(
      make("bdi", {}, shown(version.agent || "agent")),
      goes ? make("span.now", {}, make("span.pulse", { "aria-hidden": "true" }), make("span.doing", {}, this.trace.doing)) : "",
      goes || is === "answered" ? "" : chip(version),
      goes ? "" : make("span.quiet", {}, when(version.updated)),
    );
    this.place.setAttribute("aria-busy", String(goes));
    const isTrouble = ["crashed", "failed", "cancelled", "interrupted", "stopped"].includes(is);
    const last = page.isLast(this);
    this.how.replaceChildren();
    if (isTrouble) {
      const early = is === "stopped" && version.html ? "Answered early: " : `${WORDS[is]} `;
      const place = make(
        `div.end.is-${is}`,
        {},
        make("p", {}, early, shown(version.reason), version.hint ? [" ", shown(version.hint)] : null),
        make(
          "div.buttons",
          {},
          last && is === "stopped" ? this.control("Continue", () => page.act("continue", this)) : null,
          ["cancelled", "interrupted", "crashed"].includes(is)
            ? this.control("Resume", async () => {
                await server.resume(version.run, {});
                await page.refresh();
              })
            : null,
          last ? this.control("Retry", () => page.act("retry", this)) : null,
        ),
      );
      this.how.append(place);
    }
    const at = this.data.versions.indexOf(version),
      count = this.data.versions.length;
    const turnTo = (by) => page.keep(() => this.update(this.data, this.data.versions[at + by].run));
    this.acts.replaceChildren(
      ...[
        version.html && !goes ? copyButton(() => version.text, "Copy the answer") : null,
        last && is === "answered" ? button("Retry", () => this.doing(() => page.act("retry", this)), { class: "act" }) : null,
        goes ? null : button("Edit", () => page.edit(this), { class: "act", "aria-label": "Edit this message" }),
        count > 1 ? button("‹", () => turnTo(-1), { class: "act", "aria-label": "Earlier version", disabled: at === 0 }) : null,
        count > 1 ? make("span.quiet", {}, `version ${at + 1} of ${count}`) : null,
        count > 1 ? button("›", () => turnTo(1), { class: "act", "aria-label": "Later version", disabled: at === count - 1 }) : null,
        this.data.branches.map((each, i) =>
          link(
            this.data.branches.length > 1 ? `Branch ${i + 1}` : "Other branch", `#/${encodeURIComponent(each)}`,
            { class: "act" },
          ),
        ),
        link(
          "Details", `./#/runs/${encodeURIComponent(version.run)}`,
          { class: "act", "aria-label": "Details of this run" },
        ),
      ]
        .flat()
        .filter(Boolean),
    );
  }

  control(words, work) {
    return button(words, () => this.doing(work), words === "Retry" ? {} : { class: "main-act" });
  }

  doing(work) {
    return doing(this.how, work);
  }

  async follow() {
    if (this.stop) return;
    let gone = false;
    this.stop = () => {
      gone = true;
    };
    let found;
    try {
      found = await server.run(this.run);
    } catch (error) {
      this.how.replaceChildren(problem(error));
      this.stop = null;
      return;
    }
    if (gone) return;
    this.may = found.may || {};
    this.page.keep(() => this.take(found));
    this.stop = server.watchRun(
      this.run,
      found.seq,
      (news) => this.page.keep(() => this.take(news)),
      (lost) => this.page.lost(lost),
      (steps) => this.page.keep(() => this.write(steps)),
      { answers: 1 },
    );
  }

  // News of the run.
  take(news) {
    this.trace.take(news);
    if (news.waiting) this.waits = news.waiting;
    if (news.run) {
      const was = this.version.status;
      this.version.status = news.run.status;
      if (was !== news.run.status) {
        const words = news.run.status === "waiting" ? "The agent waits for you." : `The run is ${news.run.status}.`;
        if (news.run.status !== "running") announce(words);
        this.page.changed();
        if (news.run.status !== "waiting") this.page.refresh();
        if (GOING.includes(news.run.status)) this.draw();
      }
    }
    this.say(this.isWriting ? "writes …" : this.trace.doing);
    this.drawAsks();
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
    const open = new Map(this.waits.map((each) => [each.item, each]));
    for (const each of this.asks.querySelectorAll(".ask")) {
      if (open.has(each.dataset.item)) continue;
      const told = this.trace.items.get(each.dataset.item);
      const words = told?.approved === true ? "Approved" : told?.approved === false ? "Refused" : "Answered";
      each.replaceWith(make(
        "p.decided.quiet", {}, `${words}: `, shown(flat(each.dataset.about, 200)),
        told?.told?.[0] ? [" · ", shown(flat(told.told[0], 200))] : null,
      ));
    }
    for (const [id, each] of open) {
      const item = this.trace.items.get(id);
      if (!item || this.asks.querySelector(`[data-item="${CSS.escape(id)}"]`)) continue;
      const call = this.trace.items.get(`c${item.call}`);
      this.asks.append(
        make(
          "section.ask",
          { "data-item": id, "data-about": flat(item.text[0], 300), "aria-label": "The agent asks" },
          make(
            "h3", {},
            { question: "The agent asks", plan: "Approve this plan?" }[item.ask] ||
              `Approve ${flat(call?.tool || "this call", 80)}?`,
          ),
          long(item.text, { className: item.ask === "question" ? "prose" : "code", label: "question" }),
          (item.ask === "question" ? this.may.answer : this.may.approve)
            ? waitForm(server, { run: this.run }, item, each.question, async () => {
                this.leave();
                await this.page.refresh();
                await this.follow();
              })
            : make(
              "p.quiet", {}, "Somebody with the role 'approve' must answer this. ",
              link("Link to the run", `./#/runs/${encodeURIComponent(this.run)}`),
            ),
        ),
      );
    }
  }

  leave() {
    this.stop?.();
    this.stop = null;
  }
}

// A turn that is on its way: the message, and what went wrong with it.
export const sending = (text, files) => {
  const how = make("div.how");
  const now = make("h2.who", {}, make("span.now", {}, make("span.pulse", { "aria-hidden": "true" }), "sends …"));
  const place = make(
    "article.turn.sending", {},
    make(
      "div.you", {},
      said(text, files.length ? make("ul.files", {}, files.map((each) => make("li", {}, shown(each.name)))) : null),
    ),
    make("div.reply", {}, now, how),
  );
  const fail = (error, again, back) => {
    now.hidden = true;
    let left = Math.ceil(error.wait || 0);
    const retry = button("Retry", again, { class: "main-act" });
    how.replaceChildren(problem(error), make("div.buttons", {}, retry, button("Back to the text", back)));
    const tick = () => {
      retry.disabled = left > 0;
      retry.textContent = left > 0 ? `Retry in ${left} s` : "Retry";
      if (left-- > 0) setTimeout(tick, 1000);
    };
    tick();
  };
  return { place, fail };
};

export const earlierTurn = (each) =>
  make(
    "article.turn", {}, make("div.you", {}, said(each.question)),
    make("div.reply", {}, make("div.md", {}, nodesOf(each.html))),
  );
