// The changes that were run over runs: how far each is, and what it made better and worse.
import { doing } from "./acts.js";
import { addTaskDialog, addTasksDialog } from "./datasets.js";
import { button, chip, duration, flat, link, many, money, number, pageAddress, shown, when } from "./dom.js";
import { html } from "./html.js";
import { linkList } from "./improve.js";
import { copyButton } from "./markdown.js";
import { rateControls } from "./rate.js";
import { marked } from "./wire.js";

const SIGNS = {
  better: ["▲", "better"], worse: ["▼", "worse"], same: ["=", "same"], bad: ["", "was bad, not judged yet"],
  half: ["", "judge the old answer too"], different: ["≠", "different answer, not judged"],
  alike: ["", "same answer, not judged"],
};
const NAMES = { tokens: "Tokens", cost: "USD", seconds: "Time", steps: "Steps" };
const format = (name, value) =>
  name === "cost" ? money(value).replace(" USD", "") : name === "seconds" ? duration(value) : number(value);
const percent = (value) => `${value > 1 ? "+" : ""}${Math.round((value - 1) * 100)} %`;
const heads = (...words) => html`<thead><tr>${words.map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>`;

// A table of sums before and after, with the change: also that of two runs side by side.
export const sumsTable = (rows, [before, after] = ["Before", "After"]) => {
  const cell = (name, value) => html`<td>${value === null || value === undefined ? "?" : format(name, value)}</td>`;
  const row = ([name, a, b, more = ""]) => html`<tr><th scope="row">${NAMES[name]}</th>${cell(name, a)}${cell(name, b)}
    <td>${a && typeof b === "number" ? percent(b / a) : ""}${more}</td></tr>`;
  return html`<div class="box took-table"><table>${heads("", before, after, "Change")}
    <tbody>${rows.map(row)}</tbody></table></div>`;
};

// What was changed: short values as an arrow, texts as their difference.
export const changeList = (changes) =>
  changes.map(([name, before, after, difference]) => {
    const isLong = name === "instructions" || name.startsWith("prompt ");
    if (!isLong) return html`<p>${name}: <del>${shown(before || "none")}</del> → <ins>${shown(after)}</ins></p>`;
    const both = [before && html`<del>${shown(before)}</del>`, after && html`<ins>${shown(after)}</ins>`];
    const text = difference ? marked(...difference) : both;
    return html`<p>${name}:</p><pre class="exact" dir="auto" tabindex="0">${text}</pre>`;
  });

// Says that a fork was a trial, and gives the change to whoever changes the agent itself.
export const trialNote = (agent, changes) => {
  const lines = changes.map(([name, before, after]) => `${name}:\n- ${before || "none"}\n+ ${after}`);
  const text = () => [`Agent ${agent || "without a name"}`, ...lines, location.href].join("\n\n");
  return html`<p class="trial">This was a trial: the agent <bdi>${shown(flat(agent, 60))}</bdi> itself is unchanged.
    ${copyButton(text, "Copy the change", "Copy the change")}</p>`;
};

const answerOf = (run, difference) =>
  html`<p class="pair-answer">${difference ? marked(...difference) : shown(flat(run.answer || run.reason, 300))}</p>`;
const signOf = (each) => {
  if (each.sign === "half" && each.after.status !== "answered") return ["", "no answer now; the old one is not judged"];
  if (each.sign === "different" && !each.after.answer) return ["", "no answer now, not judged"];
  return SIGNS[each.sign] || ["", ""];
};

const rowOf = (each, source, read) => {
  if (each.missing) return html`<tr><td colspan="6">${shown(each.missing)}</td></tr>`;
  const to = each.after ? ["sides", each.run, each.after.run] : ["runs", each.run];
  const [sign, words] = signOf(each);
  const question = html`<bdi>${shown(flat(each.before.question, 120))}</bdi>`;
  const end = (run, grade, difference) => {
    if (!run) return html`<span>${shown(each.problem || "not begun")}</span>`;
    // A rating is shown by the buttons, and an end without an answer by the status.
    const isGraded = grade && !["good", "bad", run.status].includes(grade[0]);
    const seen = isGraded ? { mark: flat(grade[0], 20), success: grade[1] } : run.grade;
    return html`${chip({ ...run, rating: isGraded ? "" : run.rating, grade: seen })}${answerOf(run, difference)}
      ${each.sign && rateControls(source, run, read)}`;
  };
  const used = (name) => {
    const [a, b] = each.used?.[name] || [];
    return html`<td data-unit=${NAMES[name]}>${a && typeof b === "number" ? percent(b / a) : ""}</td>`;
  };
  const keep = () => addTaskDialog(source, each.after, read);
  const test = each.is_test ? html`<small class="quiet">a test</small>` : button("Keep as test", keep, { class: "act" });
  return html`<tr class="is-${each.sign || "open"}">
    <th scope="row">${link(question, pageAddress(...to))}</th>
    <td data-side="Before">${end(each.before, each.grades?.[0])}</td>
    <td data-side="After">${end(each.after, each.grades?.[1], each.difference)}</td>
    <td class="sign"><p><span aria-hidden="true">${sign}</span> ${words}</p>${each.sign && test}</td>
    ${used("tokens")}${used("cost")}</tr>`;
};

const summaryOf = (found) => {
  const sums = Object.entries(found.sums).filter(([, each]) => each);
  const interval = (each) => each.interval && html`<small> (${each.interval.map(percent).join(" to ")})</small>`;
  const [before, after] = [found.before, found.after].map((each) => Math.round(each * 100));
  const counts = `${found.answered} of ${found.pairs} answered, ${found.judged} judged.`;
  const success = `Success where both are judged: ${before} % before, ${after} % after.`;
  const todo = "Nobody has judged both answers of a question yet. Rate them below, or keep expected answers as tests.";
  return html`<section><h2>Better or worse</h2><p><strong>${shown(found.judged ? found.word : counts)}</strong></p>
    <p class="quiet">${found.judged ? `${counts} ${success}` : todo}</p>
    ${sumsTable(sums.map(([name, each]) => [name, each.before, each.after, interval(each)]))}</section>`;
};

export const changesPage = async (place, source, name) => {
  if (!name) {
    const more = (each) => [many(each.runs, "run"), when(each.started), flat(each.by)];
    const entry = (each) => [[pageAddress("changes", each.name), flat(each.title) || each.name], ...more(each)];
    return place.replaceChildren(linkList((await source.changes()).map(entry)));
  }
  let timer = null, hasLeft = false, turns = 0, last = "";
  // A row that has not changed stays where it is, with what the user writes, and hears each click.
  const top = html`<div></div>`, body = html`<tbody></tbody>`, drawn = new Map();
  place.append(html`${top}<div class="box" tabindex="0" role="region" aria-label="The runs and their forks">
    <table class="pairs">${heads("Question", "Before", "After", "", "Tokens", "USD")}${body}</table></div>`);
  const drawRow = (each) => {
    const [key, before] = drawn.get(each.run) || [];
    if (key === JSON.stringify(each)) return before;
    const row = rowOf(each, source, read);
    drawn.set(each.run, [JSON.stringify(each), row]);
    return row;
  };
  const draw = (found) => {
    const count = found.rows.length;
    const ended = found.rows.filter((each) => each.sign).length;
    const waits = found.rows.filter((each) => each.after?.status === "waiting").length;
    const acts = html`<div class="buttons"></div>`;
    const turn = (words, how) =>
      acts.append(button(words, () => doing(acts, () => source.turnChange(name, how).then(read))));
    if (found.is_active) turn("Cancel", "cancel");
    else if (ended + waits < count) turn("Continue", "resume");
    const worse = found.rows.filter((each) => each.sign === "worse" && !each.is_test && each.before.answer);
    if (worse.length) acts.append(button("Keep the worse ones as tests", () => addTasksDialog(source, worse, read)));
    const agent = found.rows.find((each) => each.before)?.before.agent || "";
    const done = `${ended} of ${many(count, "run")} done`;
    const states = [done, waits && `${waits} wait for approval`, found.is_cancelled && "cancelled"];
    top.replaceChildren(html`<header class="run-head"><h1 tabindex="-1">Change: ${shown(flat(found.title) || name)}</h1>
        <p class="quiet">${when(found.started)}${found.by && ` · ${flat(found.by)}`}</p>
        <p role="status">${states.filter(Boolean).join(", ")}</p>
        <progress max=${count} value=${ended} aria-label="Runs that are done"></progress>${acts}
        <details open><summary>What was changed</summary>${changeList(found.changes)}</details>
        ${ended === count && trialNote(agent, found.changes)}</header>
      ${found.summary && summaryOf(found.summary)}`);
    found.rows.forEach((each, i) => {
      const row = drawRow(each), old = body.children[i];
      if (old === row) return;
      const focused = [...(old?.querySelectorAll("button") || [])].indexOf(document.activeElement);
      if (old) old.replaceWith(row);
      else body.append(row);
      row.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
    });
  };
  const read = async () => {
    clearTimeout(timer);
    const mine = ++turns;
    const found = await source.change(name);
    if (hasLeft || mine !== turns) return; // what was asked before a rating must not be drawn after it
    if (JSON.stringify(found) !== last) draw(found);
    last = JSON.stringify(found);
    if (found.is_active || found.rows.some((each) => ["running", "waiting"].includes(each.after?.status)))
      timer = setTimeout(() => read().catch(() => {}), 1500);
  };
  await read();
  document.title = `Change ${name} · Plait`;
  const leave = () => {
    hasLeft = true;
    clearTimeout(timer);
  };
  return { leave };
};
