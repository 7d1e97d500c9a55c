// The data sets, files of questions with expected answers, to which runs are added; and the comparisons on them.
import { area, doing, field, select, submitting } from "./acts.js";
import {
  bdi, button, closeButtons, flat, link, many, number, openDialog, pageAddress, problem, runAddress, shown, when,
} from "./dom.js";
import { html } from "./html.js";
import { linkList } from "./improve.js";
import { copyButton } from "./markdown.js";
import { keep, kept } from "./theme.js";

const GRADERS = {
  exact: "exactly the same words", number: "ends with the same number",
  f1: "the same words, with a score", yesno: "says the same, yes or no",
  has: "contains the text or the number", contains: "contains it, in whole words",
};

// The dialog that adds tasks to a data set. `read()` returns them, without their grader. The set and the grader are
// those of the last time.
const tasksDialog = async (source, title, words, about, read, onAdded) => {
  const { datasets, graders } = await source.datasets();
  const last = kept("plait-dataset", datasets[0]?.name || "tests");
  const set = html`<input id="task-set" type="text" value=${last} required list="task-sets" autocomplete="off">`;
  const choices = graders.map((each) => [each, GRADERS[each] || each]);
  const grader = select("task-grader", choices, kept("plait-grader", "exact"));
  const add = async () => {
    const name = set.value.trim();
    const tasks = await read();
    let same = 0;
    for (const task of tasks) same += (await source.addTask(name, { ...task, grader: grader.value })).same;
    keep("plait-dataset", name);
    keep("plait-grader", grader.value);
    const twice = same > 0 && ` It had ${many(same, "task")} with the same question before.`;
    form.replaceChildren(html`<p role="status">${link(name, pageAddress("datasets", name))} has
      ${many(tasks.length, "more question")}.${twice}</p>${closeButtons()}`);
    form.querySelector("button").focus();
    onAdded();
  };
  const form = html`<form method="dialog" onsubmit=${submitting(add)}>${field("Data set", set)}
    <datalist id="task-sets">${datasets.map((each) => html`<option value=${each.name}></option>`)}</datalist>
    ${about}${field("When an answer is right, compared with the expected one", grader)}${closeButtons(words)}</form>`;
  openDialog("small", title, form);
};

// Adds the questions of forks to a data set, with the answers of the runs before. `rows`: {run, after}.
export const addTasksDialog = (source, rows, onAdded) => {
  const read = () =>
    Promise.all(rows.map(async (row) => {
      const { run } = await source.run(row.run);
      return { question: run.question, answer: run.answer, run: row.after.run };
    }));
  const about = html`<p class="quiet">${many(rows.length, "question")}, each with the answer before the change as the
    expected one.</p>`;
  return tasksDialog(source, "Keep the worse ones as tests", "Keep as tests", about, read, onAdded);
};

// Adds a run's question and answer to a data set. A fork's expected answer is that of the original, unless that was
// rated bad.
export const addTaskDialog = async (source, run, onAdded = () => {}) => {
  const whole = (await source.run(run.run)).run;
  const original = run.parent && run.rating !== "good" ? (await source.run(run.parent)).run : whole;
  const isRight = original.question === whole.question && original.rating !== "bad";
  const question = area("task-question", whole.question);
  const answer = Object.assign(area("task-answer", (isRight && original.answer) || ""), { required: true });
  const note = area("task-note", "", 2);
  const read = () => [{ question: question.value, answer: answer.value, note: note.value, run: run.run }];
  const about = html`${field("Question", question)}${field("Expected answer", answer)}${field("Note", note)}`;
  await tasksDialog(source, "Add to a data set", "Add", about, read, onAdded);
  answer.focus();
};

// Comparisons on record: each is a page of its own, that of `plait compare --html`.
const comparisonList = (source, found) =>
  linkList(found.map((each) => [
    [source.comparison(each.name), each.name],
    bdi(flat(each.suite.split("/").at(-1), 60)),
    `${number(each.finished)} of ${many(each.cells, "run")}`,
    bdi(each.loops.join(", ")),
    when(each.started),
  ]));
export const comparisonsPage = async (place, source) =>
  place.replaceChildren(comparisonList(source, await source.comparisons()));

export const datasetsPage = async (place, source, name) => {
  if (!name) {
    const entry = (each) =>
      [[pageAddress("datasets", each.name), each.name], many(each.tasks, "task"), flat(each.problem)];
    return place.replaceChildren(linkList((await source.datasets()).datasets.map(entry)));
  }
  const drawTask = (task) => {
    const before = typeof task.answer === "string" ? task.answer : JSON.stringify(task.answer ?? "");
    const answer = html`<textarea rows="2" aria-label="Expected answer to ${flat(task.question, 60)}"
      oninput=${() => (save.hidden = answer.value === before)}></textarea>`;
    answer.value = before;
    const { line, digest } = task;
    const change = (changes) =>
      doing(item, async () => draw(await source.changeTask(name, { line, digest, ...changes })));
    const save = button("Save", () => change({ answer: answer.value }), { hidden: true });
    const ask = ({ target }) => {
      if (target.textContent === "Remove") target.textContent = "Really remove?";
      else change({ remove: true });
    };
    const grader = task.grader || "exact";
    const about = `line ${line} · ${GRADERS[grader] || grader}${task.note ? ` · ${task.note}` : ""}`;
    const remove = { class: "act refuse", "aria-label": `Remove ${flat(task.question, 60)}` };
    const item = html`<li class="task"><p><bdi>${shown(task.question)}</bdi></p>${answer}
      <div class="buttons"><small class="quiet">${shown(about)}</small>
        ${task.run && link("run", runAddress(task.run), { class: "act" })}${save}
        ${button("Remove", ask, remove)}</div></li>`;
    return item;
  };
  const draw = (found) => {
    const twice = found.twice.map((each) => flat(each, 80)).join(" · ");
    const download = link("Download", source.datasetFile(name), { class: "act", download: "" });
    place.replaceChildren(html`<header class="run-head"><h1 tabindex="-1">${shown(name)}</h1>
        <p>To compare agents on it, run this in the folder of the server:</p>
        <pre class="exact">${shown(found.command)}</pre>
        <div class="buttons">${copyButton(() => found.command, "Copy the command", "Copy the command")}${download}</div>
        ${found.comparisons && html`<h2>Comparisons on it</h2>${comparisonList(source, found.comparisons)}`}
        <h2>Tasks</h2></header>
      ${found.problems.map((each) => problem(new Error(`${each} Plait leaves it as it is.`)))}
      ${twice && html`<p class="warning">Asked more than once: ${shown(twice)}</p>`}
      <ul class="plain-list">${found.tasks.slice(0, 1000).map(drawTask)}</ul>`);
  };
  draw(await source.dataset(name));
  document.title = `${name} · Plait`;
};
