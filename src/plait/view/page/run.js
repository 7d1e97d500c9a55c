// The page of one run: the outcome on top, then the steps, which grow while the run continues.
import { actsOf, waitPart } from "./acts.js";
import { Braid, braidOptions, exactTime, stepActs } from "./braid.js";
import {
  announce, bdi, button, chip, duration, endOf, flat, line, link, many, money, number, problem, runAddress, shown,
  tokens, when,
} from "./dom.js";
import { Composer, drawSent, hasTaken, sendTo, sentPlace } from "./composer.js";
import { finder } from "./find.js";
import { html } from "./html.js";
import { answerOf } from "./markdown.js";
import { planOf } from "./plan.js";
import { rateControls } from "./rate.js";
import { long } from "./text.js";
import { drawTodo } from "./todo.js";
import { Waterfall } from "./waterfall.js";

const phaseSection = (run) => {
  const row = ({ phase, model, calls, usage, seconds, cost_usd: cost }) => html`<tr>
    <th scope="row">${shown(phase || "?")}${model && html`<small>${bdi(model)}</small>`}</th>
    <td>${number(calls)}</td>
    <td>${model && number(usage.input_tokens)}</td>
    <td>${model && number(usage.output_tokens)}</td>
    <td>${duration(seconds)}</td>
    <td>${model && (cost === null ? "?" : money(cost).replace(" USD", ""))}</td>
  </tr>`;
  const heads = ["Phase", "Calls", "In", "Out", "Time", "Model cost (USD)"].map((each) => html`<th scope="col">${each}</th>`);
  const estimated = html`<p class="quiet">Tokens are estimated where the provider did not report them.</p>`;
  return html`<section>
    <h2 id="phases-title">What it took</h2>
    <div class="box" tabindex="0" role="region" aria-labelledby="phases-title">
      <table><thead><tr>${heads}</tr></thead><tbody>${run.phases.map(row)}</tbody></table>
    </div>
    ${run.estimated && estimated}
  </section>`;
};

const aboutSection = (run, source) => {
  const { live } = source, { tree } = run;
  const fact = (name, ...value) => html`<dt>${name}</dt><dd>${value}</dd>`;
  const lines = (list, draw) => list.map((each) => html`<div>${draw(each)}</div>`);
  const runLink = (id) => (live ? link(id, runAddress(id)) : html`<span>${id}</span>`);
  const pair = `#/sides/${encodeURIComponent(run.parent)}/${encodeURIComponent(run.run)}`;
  const sides = live && [" ", link("side by side", pair)];
  const session = live ? link(run.session, `#/?session=${encodeURIComponent(run.session)}`) : bdi(run.session);
  const file = (id) => (live ? link(id, source.file(run.run, id), { download: true }) : bdi(id));
  const child = (each) => [runLink(each.run), ` ${each.status} `, bdi(each.question)];
  const tool = ({ name, what }) => html`<li><code>${shown(name)}</code> <span class="quiet">${shown(what)}</span></li>`;
  const tools = html`<ul class="tools">${run.tools.map(tool)}</ul>`;
  const folded = (words, content) => html`<details><summary>${words}</summary>${content}</details>`;
  const isLeftOut = ([name, value]) => value === "" || ["shown", "agent", "instructions", "context_text"].includes(name);
  const settings = [...Object.entries(run.options), ...Object.entries(run.settings)].filter((each) => !isLeftOut(each));
  const draw = ([name, value]) => fact(name, shown(typeof value === "string" ? value : JSON.stringify(value)));
  const listSettings = (list) => html`<dl class="settings">${list.map(draw)}</dl>`;
  const given = settings.filter(([name]) => !run.defaults.includes(name));
  const others = settings.filter(([name]) => run.defaults.includes(name));
  const asDefault = `${number(others.length)} ${given.length ? "more " : ""}with the default value`;
  const facts = [
    fact("Run", html`<code>${run.run}</code>`),
    run.agent && fact("Agent", bdi(run.agent)),
    run.user && fact("User", bdi(run.user)),
    run.tags.length > 0 && fact("Tags", lines(run.tags, bdi)),
    fact("Models", lines(Object.entries(run.phase_models), ([phase, model]) => [phase && `${phase}: `, bdi(model)])),
    run.session && fact("Session", session, run.history ? ` (shown ${many(run.history, "turn")})` : ""),
    run.parent && fact("Fork of", runLink(run.parent), ` at step ${run.fork_at}`, sides),
    run.forks.length > 0 && fact("Forks", lines(run.forks, runLink)),
    run.caller && fact("Child of", runLink(run.caller)),
    run.children.length > 0 && fact("Child runs", lines(run.children, child)),
    tree &&
      fact(
        "With child runs",
        `${many(tree.requests, "request")}, ${number(tree.input_tokens + tree.output_tokens)} tokens`,
        tree.cost_usd !== null && `, ${money(tree.cost_usd)}`,
      ),
    run.attachments.length > 0 && fact("Attached", lines(run.attachments, bdi)),
    run.files.length > 0 && fact("Files", lines(run.files, ({ id, about }) => [file(id), " ", bdi(about)])),
    fact("Tools", run.tools.length ? folded(many(run.tools.length, "tool"), tools) : "none"),
    fact("Started", exactTime(run.started)),
    run.plait && fact("Plait", run.plait),
    fact("Settings", listSettings(given), others.length > 0 && folded(asDefault, listSettings(others))),
  ];
  return html`<section><h2>About</h2><dl>${facts}</dl></section>`;
};

const outcomeParts = (run) => {
  const why = (...words) => html`<p class="why">${words}</p>`;
  const reason = run.rating_why ? shown(`: ${run.rating_why}`) : ".";
  const rated = run.rating && why(`A user rated this run as ${run.rating}`, reason);
  const { grade, answer } = run;
  if (answer !== null && answer !== undefined)
    return html`${run.answer_html && html`<h2 class="unseen">Answer</h2>`}${answerOf(run)}
      ${run.status === "stopped" && why("Answered early: ", shown(run.reason || ""))}
      ${grade?.why && why("The comparison graded this run as ", shown(`${grade.mark}: ${grade.why}`))}
      ${rated}`;
  if (["running", "waiting"].includes(run.status)) return null; // a step shows what it waits for
  const cause = run.reason && long([run.reason, 0], { className: "prose", label: "reason" });
  return html`${rated}${cause && html`<div class="why">${cause}</div>`}${run.hint && why(shown(run.hint))}`;
};

export const runPage = async (place, source, id, { toStep = null, isOverTime = false } = {}) => {
  const data = await source.run(id);
  let run = data.run, waits = data.waiting, stopWatching = null, hasLeft = false;
  const instructions = [run.settings.instructions, run.settings.context_text].filter(Boolean).join("\n\n");
  const question = run.question.length > 2000 ? `${run.question.slice(0, 2000)}…` : run.question;
  const state = html`<div class="state"></div>`;
  const answer = html`<section class="outcome" aria-label="How it ended"></section>`;
  const acts = html`<div class="run-acts"></div>`;
  const side = html`<aside class="beside" tabindex="0" aria-label="About this run"></aside>`;
  const plan = html`<div class="plan-place"></div>`;
  const todo = html`<div></div>`;
  const meanwhile = sentPlace();
  const readSent = () => source.live && drawSent(source, id, meanwhile).catch(() => {});
  const onSend = async (message) => {
    await sendTo(source, id, message);
    composer.put("");
    await readSent();
    meanwhile.lastElementChild?.scrollIntoView({ block: "center" });
  };
  const composer = new Composer({ onSend, label: "Message to the run" });
  composer.going("running");
  composer.stopper.hidden = true; // the buttons above cancel the run
  const list = html`<ol class="steps"></ol>`;
  const connectionNotice = html`<p class="lost" role="status"></p>`;
  const may = data.may || {};
  const fork = may.fork
    ? async (step, focus) => (await import("./change.js")).forkDialog(source, run, step, focus)
    : null;
  const addTask = async () => (await import("./datasets.js")).addTaskDialog(source, run);
  const braid = new Braid(list, {
    ...braidOptions(source, id),
    ...(may.change ? {} : { cancel: null }),
    answer: () => run.answer,
    describe: (name) => run.tools.find((each) => each.name === name)?.what,
    user: run.user,
    heads: (step) => stepActs(id, step, fork),
    results: (item) =>
      fork && button("Edit and run from here", () => fork(item.step + 1, item.id.slice(1)), { class: "act" }),
    waits: (item) => {
      const asked = waits.find((each) => each.item === item.id);
      if (!source.live) return html`<p class="quiet">It waits for an answer.</p>`;
      return asked && waitPart(source, run, item, asked.question, reopen, may);
    },
  });

  const applyRating = (now) => {
    run = { ...run, rating: now ? (now.good ? "good" : "bad") : "", rating_why: now?.why || "" };
    drawHead();
  };

  let follows = false;
  const turnFollow = () => {
    follows = !follows;
    follow.setAttribute("aria-pressed", String(follows));
    if (follows) scrollDown();
  };
  const follow = button("Follow", turnFollow, { class: "follow", "aria-pressed": "false", hidden: true });
  const scrollDown = () => {
    const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
    scrollTo({ top: document.documentElement.scrollHeight, behavior });
  };

  const drawHead = () => {
    document.title = `${flat(run.question, 60)} · Plait`;
    const isRunning = run.status === "running", clock = isRunning ? run.work : run.seconds;
    const time = isRunning && clock < 0.0005 ? "waiting for the model" : duration(clock);
    const counts = [many(run.steps, "step"), many(run.calls, "model call"), tokens(run)];
    const names = [run.loop, ...run.models].map(bdi);
    state.replaceChildren(chip(run), line("facts-line", names, counts, time, money(run.cost), when(run.started)));
    // The answer stays as it is while it says the same, so that the user's place and choice in it stay.
    const outcome = JSON.stringify([run.status, run.answer, run.reason, run.hint, run.rating, run.rating_why, run.grade]);
    if (answer.dataset.of !== outcome) {
      const how = outcomeParts(run);
      answer.dataset.of = outcome;
      answer.replaceChildren(how || "");
      answer.hidden = !how;
    }
    answer.className = `outcome is-${endOf(run)}`;
    // Keeps a button that means the same: a button that is replaced while the user presses it gets no click.
    const now = { ...may, answer: waits.some(({ ask }) => (ask === "question" ? may.answer : may.approve)) };
    const shownFor = `${run.status} ${run.owner} ${now.answer}`;
    if (source.live && acts.dataset.of !== shownFor) {
      acts.dataset.of = shownFor;
      acts.replaceChildren(...actsOf(source, run, reopen, now));
      const isOver = !["running", "waiting"].includes(run.status);
      const edit = button("Change and run again", () => fork(1, "question"), { class: "main-act" });
      if (isOver && fork) acts.firstChild.append(edit, button("Add to a data set", addTask));
      if (isOver && may.change) acts.append(rateControls(source, run, applyRating));
    }
    // Keeps the details open that the user opened, while the run continues.
    const open = [...side.querySelectorAll("details")].map((each) => each.open);
    side.replaceChildren(html`${run.phases.length > 0 && phaseSection(run)}${aboutSection(run, source)}`);
    side.querySelectorAll("details").forEach((each, i) => (each.open = open[i] || false));
    follow.hidden = !isRunning;
    composer.place.hidden = !(isRunning && may.change);
  };
  // Forms of waiting items come and go with what the run waits for; one that somebody is filling in stays. A reply that
  // turns out to be the answer stands above.
  const itemsOf = (kind) => [...braid.items.values()].filter((item) => item.kind === kind);
  const applyNews = (news) => {
    const before = run.status;
    if (news.run) run = news.run;
    const waitsChanged = news.waiting && JSON.stringify(news.waiting) !== JSON.stringify(waits);
    if (news.waiting) waits = news.waiting;
    for (const step of news.steps || []) braid.put(step);
    if (waitsChanged) braid.redraw(itemsOf("wait"));
    if (before !== run.status && run.answer) braid.redraw(itemsOf("model").slice(-1));
    if (news.plan) plan.replaceChildren(planOf(news.plan));
    drawTodo(todo, braid.items.values());
    drawHead();
    growTime();
    if (meanwhile.childElementCount && (hasTaken(news) || before !== run.status)) readSent();
    const last = news.steps?.at(-1);
    const words = { waiting: "waits for you", running: "goes on" }[run.status] || run.status;
    if (before !== run.status) announce(`The run ${words}.`);
    else if (last?.items.length) announce(describeChange(last));
    if (follows) scrollDown();
  };

  // -- the same run over time, which is read when somebody looks at it
  const time = html`<div class="time"></div>`;
  let waterfall = null, later = null, growing = null;
  const growTime = () => {
    if (!isOverTime || later) return;
    waterfall ||= new Waterfall(time, source, id);
    const grow = () => {
      later = null;
      growing = waterfall.grow().catch((error) => time.replaceChildren(problem(error)));
    };
    if (waterfall.now) later = setTimeout(grow, 1000);
    else grow();
  };
  const turn = (value) => {
    isOverTime = value;
    if (source.live) history.replaceState(null, "", runAddress(id, ...(value ? ["time"] : [])));
    showView();
  };
  const tabs = html`<div class="tabs" role="group" aria-label="How the run is shown">
    ${button("Steps", () => turn(false))}${button("Over time", () => turn(true))}</div>`;
  const showView = () => {
    [...tabs.children].forEach((each, i) => each.setAttribute("aria-pressed", String(isOverTime === Boolean(i))));
    list.hidden = isOverTime;
    time.hidden = !isOverTime;
    place.querySelector(".columns").classList.toggle("over-time", isOverTime);
    growTime();
  };
  const showHit = (hit) => {
    if (isOverTime) turn(false);
    const node = list.querySelector(`[data-item="${CSS.escape(hit.item)}"]`) || list.querySelector(`#step-${hit.step}`);
    list.querySelector(".is-found")?.classList.remove("is-found");
    if (!node) return;
    node.classList.add("is-found");
    for (const each of node.querySelectorAll("details")) each.open = true;
    node.scrollIntoView({ block: "center" });
  };
  const found = finder((words) => source.search(id, words), showHit);

  const watch = () => {
    stopWatching?.();
    const broken = (gone) => (connectionNotice.textContent = gone ? "The connection is lost; trying again." : "");
    const writing = (steps) => {
      braid.write(steps);
      if (follows) scrollDown();
    };
    stopWatching = source.watchRun && !hasLeft ? source.watchRun(id, data.seq, applyNews, broken, writing) : null;
  };
  async function reopen() {
    const news = await source.run(id);
    if (hasLeft) return;
    data.seq = news.seq;
    applyNews(news);
    watch();
  }

  place.replaceChildren(html`
    <header class="run-head">
      <p class="crumbs">${source.live && [link("Runs", "#/"), " / "]}<code>${run.run}</code></p>
      <h1 tabindex="-1">${bdi(question)}</h1>
      ${[state, answer, acts]}
    </header>
    <div class="columns">
      <section class="main" aria-labelledby="steps-title">
        ${[plan, todo]}
        <h2 class="unseen" id="steps-title">Steps</h2>
        ${instructions && html`<details class="instructions"><summary>Instructions</summary>
          ${long([instructions, 0], { className: "prose", label: "instructions" })}</details>`}
        <div class="run-bar">${tabs}${found.form}</div>
        ${[found.list, time, list, meanwhile, connectionNotice, !may.change && follow, source.live && composer.place]}
      </section>
      ${side}
    </div>`);
  if (may.change) composer.left.append(follow);
  showView();
  drawHead();
  readSent();
  if (data.plan) plan.append(planOf(data.plan));
  if (isOverTime) await growing; // the steps are drawn behind it
  await braid.grow(data.steps);
  drawTodo(todo, braid.items.values());
  if (["running", "waiting", "interrupted"].includes(run.status)) watch();
  const to = toStep && document.getElementById(`step-${toStep}`);
  if (to) {
    to.scrollIntoView({ block: "start" });
    to.querySelector("h3").focus({ preventScroll: true });
  }
  const leave = () => {
    hasLeft = true;
    clearTimeout(later);
    stopWatching?.();
  };
  return { leave, fork, turn: () => turn(!isOverTime), search: found.input, found };
};

const describeChange = ({ n, items }) => {
  const item = items.at(-1), name = flat(item.tool || item.word || item.kind, 40);
  const isAsked = item.state === "asking", isDone = item.state === "done";
  const called = isDone ? `observation from ${name}` : `${name} is called`;
  const words = { model: isAsked ? "a model is asked" : "the model has replied", call: called }[item.kind] ?? name;
  return `Step ${n}: ${words}.`;
};
