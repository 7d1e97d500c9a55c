// Two runs side by side, with the first difference marked.
import { Braid } from "./braid.js";
import { changeList, sumsTable, trialNote } from "./changes.js";
import { addTaskDialog } from "./datasets.js";
import {
  bdi, button, chip, closeButtons, duration, line, link, many, money, openDialog, pageAddress, problem, runAddress,
  shown, tokens, withQuery,
} from "./dom.js";
import { html } from "./html.js";
import { answerOf } from "./markdown.js";
import { rateControls } from "./rate.js";
import { marked } from "./wire.js";

// `at` counts characters by code point.
const parted = (text, at) => {
  const all = [...text], rest = all.slice(at).join("");
  const mark = html`<mark>${rest ? shown(rest) : "(ends here)"}</mark>`;
  return html`<dd dir="auto"><span>${shown(all.slice(0, at).join(""))}</span>${mark}</dd>`;
};

// The requests of a step of both runs, with what differs.
const requestsDialog = async (source, a, b, n) => {
  const { requests } = await source.differences(a, b, n);
  const drawn = requests.map((each) => html`<h3>${shown(each.phase || "request")}</h3>
    ${each.before === each.after && html`<p class="quiet">They are equal.</p>`}
    <pre class="exact" dir="auto" tabindex="0">${marked(each.after, each.before, each.marks)}</pre>`);
  const about = html`<p class="quiet"><ins>only in the second</ins> <del>only in the first</del></p>`;
  const none = html`<p>Not both runs have a request in this step.</p>`;
  openDialog("large", `Requests of step ${n}`, about, drawn.length ? drawn : none, closeButtons());
};

// The facts of a run as they stand above its steps.
const headOf = (name, run) => {
  const text = run.answer ?? run.reason ?? "";
  const facts = [many(run.steps, "step"), tokens(run), duration(run.seconds), money(run.cost)];
  return html`<header>
    <h2>${name} ${link(run.run, runAddress(run.run))}</h2>
    <div class="state">${chip(run)}${line("facts-line", bdi(run.loop), run.models.map(bdi), facts)}</div>
    ${text && html`<div class="outcome">${answerOf({ ...run, answer: text }, `answer of ${name}`)}</div>`}
  </header>`;
};

// The two answers, what was changed, and what can be done next: judge the fork, keep it as a test, try the change on
// more runs.
const summary = (source, a, b, names, differences) => {
  const isFork = b.parent === a.run;
  const isOver = [a, b].every((run) => run.status !== "running");
  const used = (run, name) => (name === "tokens" ? run.in + run.out : run[name]);
  const sums = ["tokens", "cost", "seconds", "steps"].map((name) => [name, used(a, name), used(b, name)]);
  const answer = (run) => html`<dd class="short-answer">${shown((run.answer ?? run.reason ?? "").slice(0, 600))}</dd>`;
  const { changes } = differences;
  const named = changes.map(([name]) => name.replace("limit ", "limits."));
  const others = (b.settings.changed || []).filter((each) => !named.includes(each) && each !== "models");
  const like = { like: b.run, ...(b.agent ? { agent: b.agent } : { loop: a.loop }) };
  const more = link("Try this on more runs", withQuery("#/changes/new", like), { class: "act" });
  const keep = button("Keep as test", () => addTaskDialog(source, b), { class: "act" });
  return html`<section class="first" aria-label="The answers">
      <dl class="parting"><dt>${names[0]}</dt>${answer(a)}<dt>${names[1]}</dt>
        ${differences.answer ? html`<dd class="short-answer">${marked(...differences.answer)}</dd>` : answer(b)}</dl>
      ${isOver && isFork && html`<div class="buttons">${rateControls(source, b)}${keep}${more}</div>`}</section>
    ${isFork && html`<section aria-label="What was changed">
      ${others.length > 0 && html`<p><strong>Changed: </strong>${bdi(others.join(", "))}</p>`}
      ${changeList(changes)}${trialNote(b.agent, changes)}</section>`}
    ${isOver ? sumsTable(sums, names) : null}`;
};

// The way back to the change to which a fork belongs, and to the pairs before and after it.
const drawTrail = async (place, source, name, run) => {
  const { rows } = await source.change(name);
  const pairs = rows.filter((each) => each.after);
  const at = pairs.findIndex((each) => each.run === run);
  const pair = (words, each) => each && html` · ${link(words, pageAddress("sides", each.run, each.after.run))}`;
  place.replaceChildren(html`${link("Changes", "#/changes")} / ${link("This change", pageAddress("changes", name))} /
    side by side${pair("Previous pair", pairs[at - 1])}${pair("Next pair", pairs[at + 1])}`);
};

export const sidesPage = async (place, source, a, b) => {
  let found = await source.sides(a, b);
  const names = found.b.run.parent === found.a.run.run ? ["Original", "Fork"] : ["A", "B"];
  const top = html`<header class="run-head"></header>`;
  const compare = (n) => requestsDialog(source, a, b, n).catch((error) => top.prepend(problem(error)));
  const columns = [found.a, found.b].map(({ run }, i) => {
    const acts = ({ n }) => {
      const about = { class: "act", "aria-label": `Exact wire of step ${n} of run ${names[i]}` };
      const both = { class: "act", "aria-label": `Compare the requests of step ${n} of both runs` };
      return [link("wire", runAddress(run.run, "wire", n), about), button("requests", () => compare(n), both)];
    };
    const list = html`<ol class="steps"></ol>`;
    const braid = new Braid(list, {
      rest: (item, field, from) => source.text(run.run, item, field, from),
      heads: (step) => (step.phases.length ? acts(step) : []),
    });
    const side = html`<section class="side" aria-label="Run ${names[i]}">${headOf(names[i], run)}${list}</section>`;
    return { side, braid };
  });
  place.replaceChildren(top, html`<div class="sides">${columns.map(({ side }) => side)}</div>`);
  document.title = "Two runs side by side · Plait";
  let last = "";
  const mark = async () => {
    const differences = await source.differences(a, b);
    const now = JSON.stringify([found.first, found.same, differences, found.a.run, found.b.run]);
    if (now !== last) top.replaceChildren(drawHead(place, source, found, names, differences)); // else what is open stays
    last = now;
    markSteps(place, found);
  };
  await Promise.all([columns[0].braid.grow(found.a.steps), columns[1].braid.grow(found.b.steps)]);
  await mark();
  // Follows runs that go on: their steps at once, what differs a little later.
  let later = null;
  const again = async () => {
    later = null;
    found = await source.sides(a, b).catch(() => found);
    await mark().catch(() => {});
  };
  const stops = [found.a, found.b].map(({ run, seq }, i) => {
    if (!["running", "waiting", "interrupted"].includes(run.status)) return () => {};
    const { side, braid } = columns[i];
    const take = (news) => {
      for (const step of news.steps || []) braid.put(step);
      if (news.run) side.firstChild.replaceWith(headOf(names[i], news.run));
      later ||= setTimeout(again, 700);
    };
    return source.watchRun(run.run, seq, take, () => {}, (steps) => braid.write(steps));
  });
  const leave = () => {
    clearTimeout(later);
    for (const stop of stops) stop();
  };
  return { leave };
};

const drawHead = (place, source, { a, b, first, same }, names, differences) => {
  const question = a.run.question === b.run.question && a.run.question.slice(0, 600);
  const alike = html`<p><strong>They are alike</strong> in all that was decided.</p>`;
  const difference = first ? firstDifference(place, first, same, names) : alike;
  const trail = html`<p class="crumbs">${link("Runs", "#/")} / side by side</p>`;
  if (differences.change) drawTrail(trail, source, differences.change, a.run.run).catch(() => {});
  return html`${trail}<h1 tabindex="-1">Two runs side by side</h1>
    ${question && html`<p class="lede">${bdi(question)}</p>`}
    ${summary(source, a.run, b.run, names, differences)}
    <section class="first" aria-label="First difference">${difference}</section>`;
};

const firstDifference = (place, first, same, names) => {
  const jump = (event) => {
    event.preventDefault();
    place.querySelector(".differs")?.scrollIntoView({ block: "center" });
    place.querySelector(".differs")?.focus({ preventScroll: true });
  };
  const where = first.step ? `in step ${first.step}, ` : "in ";
  const alike = same.length ? `${many(same.length, "step")} ${same.length === 1 ? "is" : "are"} alike. ` : "";
  const show = first.step ? link("show it", `#step-${first.step}`, { class: "act", onclick: jump }) : null;
  const [textA, textB] = [first.a, first.b].map((text) => parted(text, first.at));
  const texts = html`<dl class="parting"><dt>${names[0]}</dt>${textA}<dt>${names[1]}</dt>${textB}</dl>`;
  const requests = first.what === "the request" && html`<p class="quiet">Compare the requests at their step.</p>`;
  return html`<p><strong>They first differ </strong>${where}<em>${first.what}</em>. ${alike}${show}</p>
    ${first.a || first.b ? texts : requests}`;
};

const markSteps = (place, { first, same }) => {
  const alike = new Set(same);
  for (const each of place.querySelectorAll(".differs-word")) each.remove();
  for (const each of place.querySelectorAll(".differs")) each.classList.remove("differs");
  place.querySelectorAll(".side").forEach((side, i) => {
    for (const step of side.querySelectorAll(".step"))
      step.classList.toggle("alike", alike.has(Number(step.dataset.step)));
    const step = first?.step && side.querySelector(`.step[data-step="${first.step}"]`);
    if (!step) return;
    const mark = step.querySelector(`[data-item="${CSS.escape(first.items[i])}"]`) || step;
    mark.classList.add("differs");
    mark.tabIndex = -1;
    mark.prepend(html`<p class="differs-word">first difference</p>`);
  });
  // Two steps of the same number have the same id: in this page they have none.
  for (const each of place.querySelectorAll(".step")) each.removeAttribute("id");
};
