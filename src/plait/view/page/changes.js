// The changes that were run over runs: how far each is, and what it made better and worse.
import { doing } from "./acts.js";
import { button, chip, duration, flat, link, many, money, number, shown, when } from "./dom.js";
import { html } from "./html.js";
import { improveTabs, listPage } from "./improve.js";

const SIGNS = { better: ["▲", "better"], worse: ["▼", "worse"], same: ["=", "same"] };
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

const rowOf = (each) => {
  if (each.missing) return html`<tr><td colspan="6">${shown(each.missing)}</td></tr>`;
  const [first, second] = each.grades || [];
  const to = each.after ? ["sides", each.run, each.after.run] : ["runs", each.run];
  const [sign, words] = SIGNS[each.sign] || ["", ""];
  const question = html`<bdi>${shown(flat(each.before.question, 120))}</bdi>`;
  const end = (run, grade) =>
    run
      ? chip({ ...run, rating: "", grade: grade && { mark: flat(grade[0], 20), success: grade[1] } })
      : html`<span>${shown(each.problem || "not begun")}</span>`;
  const used = (name) => {
    const [a, b] = each.used?.[name] || [];
    return html`<td data-unit=${NAMES[name]}>${a && typeof b === "number" ? percent(b / a) : ""}</td>`;
  };
  return html`<tr class="is-${each.sign || "open"}">
    <th scope="row">${link(question, `#/${to.map(encodeURIComponent).join("/")}`)}</th>
    <td>${end(each.before, first)}</td><td>${end(each.after, second)}</td>
    <td class="sign"><span aria-hidden="true">${sign}</span> ${words}</td>${used("tokens")}${used("cost")}</tr>`;
};

const summaryOf = (found) => {
  const sums = Object.entries(found.sums).filter(([, each]) => each);
  const interval = (each) => each.interval && html`<small> (${each.interval.map(percent).join(" to ")})</small>`;
  const [before, after] = [found.before, found.after].map((each) => Math.round(each * 100));
  const graded = `${found.graded} of ${found.pairs} pairs are graded`;
  const how =
    found.graded === found.pairs
      ? "Each answer is graded."
      : `${graded}; of the others a run counts as a success if it answered.`;
  return html`<section><h2>Better or worse</h2><p><strong>${shown(found.word)}</strong></p>
    <p class="quiet">Success: ${before} % before, ${after} % after, on ${many(found.questions, "question")}. ${how}</p>
    ${sumsTable(sums.map(([name, each]) => [name, each.before, each.after, interval(each)]))}</section>`;
};

export const changesPage = async (place, source, name) => {
  if (!name) {
    const about = "A change of an agent that was run over many runs. Select runs in the list to begin one.";
    const words = (each) => [many(each.runs, "run"), " · ", when(each.started), each.by && ` · ${flat(each.by)}`];
    const changes = await source.changes();
    return listPage(place, "changes", about, changes.map((each) => [each.name, ...words(each)]));
  }
  let timer = null,
    hasLeft = false,
    last = "";
  const draw = (found) => {
    const count = found.rows.length;
    const ended = found.rows.filter((each) => each.sign).length;
    const waits = found.rows.filter((each) => each.after?.status === "waiting").length;
    const acts = html`<div class="buttons"></div>`;
    const turn = (words, how) => {
      acts.append(button(words, () => doing(acts, () => source.turnChange(name, how).then(read))));
    };
    if (found.is_active) turn("Cancel", "cancel");
    else if (ended + waits < count) turn("Continue", "resume");
    const states = [
      `${ended} of ${many(count, "run")} done`,
      waits && `${waits} wait for approval`,
      found.is_cancelled && "cancelled",
    ];
    place.replaceChildren(html`<header class="run-head">${improveTabs("changes")}
        <h1 tabindex="-1">${shown(`Change of ${Object.keys(found.change).join(", ")}`)}</h1>
        <p class="quiet"><code>${shown(name)}</code> · ${when(found.started)}${found.by && ` · ${flat(found.by)}`}</p>
        <p role="status">${states.filter(Boolean).join(", ")}</p>
        <progress max=${count} value=${ended} aria-label="Runs that are done"></progress>${acts}
        <details><summary>What was changed</summary>
          <pre class="exact">${shown(JSON.stringify(found.change, null, 1))}</pre></details></header>
      ${found.summary && summaryOf(found.summary)}
      <div class="box" tabindex="0" role="region" aria-label="The runs and their forks"><table class="pairs">
        ${heads("Question", "Before", "After", "", "Tokens", "USD")}
        <tbody>${found.rows.map(rowOf)}</tbody></table></div>`);
  };
  const read = async () => {
    clearTimeout(timer);
    const found = await source.change(name);
    if (hasLeft) return;
    if (JSON.stringify(found) !== last) draw(found);
    last = JSON.stringify(found);
    if (found.is_active || found.rows.some((each) => ["running", "waiting"].includes(each.after?.status)))
      timer = setTimeout(() => read().catch(() => {}), 1500);
  };
  await read();
  document.title = `${name} · Plait`;
  return {
    leave: () => {
      hasLeft = true;
      clearTimeout(timer);
    },
  };
};
