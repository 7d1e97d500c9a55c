// The data sets: files of questions with expected answers, to which runs are added.
import { area, doing, field, select, submitting } from "./acts.js";
import { button, flat, link, many, problem, shown } from "./dom.js";
import { html } from "./html.js";
import { closeButtons, improveTabs, listPage, openDialog } from "./improve.js";

const GRADERS = {
  exact: "exactly equal, apart from case and punctuation", number: "ends with the same number",
  f1: "exactly equal; the score counts shared words", yesno: "says the same, yes or no",
  has: "contains the text or the number", contains: "contains it, in whole words",
};

// What a task needs besides its question: the set and the grader, those of the last time. `keep()` remembers them.
const taskFields = async (source) => {
  const { datasets, graders } = await source.datasets();
  const last = sessionStorage.getItem("plait-dataset") || datasets[0]?.name || "tests";
  const set = html`<input id="task-set" type="text" value=${last} required list="task-sets" autocomplete="off">`;
  const words = graders.map((each) => [each, GRADERS[each] || each]);
  const grader = select("task-grader", words, sessionStorage.getItem("plait-grader") || "exact");
  const keep = () => {
    sessionStorage.setItem("plait-dataset", set.value.trim());
    sessionStorage.setItem("plait-grader", grader.value);
  };
  const where = html`${field("Data set", set)}
    <datalist id="task-sets">${datasets.map((each) => html`<option value=${each.name}></option>`)}</datalist>`;
  return { set, grader, keep, where, how: field("When an answer is right, compared with the expected one", grader) };
};

const done = (form, name, words) => {
  form.replaceChildren(html`<p role="status">${link(name, `#/datasets/${encodeURIComponent(name)}`)} ${words}</p>
    ${closeButtons()}`);
  form.querySelector("button").focus();
};

// The dialog that adds the questions of forks to a data set, with the answers of the runs before. `rows`: {run, after}.
export const addTasksDialog = async (source, rows, onAdded) => {
  const { set, grader, keep, where, how } = await taskFields(source);
  const add = async () => {
    const name = set.value.trim();
    for (const row of rows.splice(0)) {
      const { run } = await source.run(row.run);
      const task = { question: run.question, answer: run.answer, grader: grader.value, run: row.after.run };
      await source.addTask(name, task);
    }
    keep();
    done(form, name, "has the questions now.");
    onAdded();
  };
  const form = html`<form method="dialog" onsubmit=${submitting(add)}>
    <p class="quiet">${many(rows.length, "question")}, each with the answer before the change as the expected one.</p>
    ${where}${how}${closeButtons("Keep as tests")}</form>`;
  openDialog("small", "Keep the worse ones as tests", form);
};

// The dialog that adds a run's question and answer to a data set. A fork's expected answer is that of the original,
// unless that was rated bad.
export const addTaskDialog = async (source, run, onAdded = () => {}) => {
  const { set, grader, keep, where, how } = await taskFields(source);
  const whole = (await source.run(run.run)).run;
  const original = run.parent && run.rating !== "good" ? (await source.run(run.parent)).run : whole;
  const isRight = original.question === whole.question && original.rating !== "bad";
  const question = area("task-question", whole.question);
  const answer = Object.assign(area("task-answer", (isRight && original.answer) || ""), { required: true });
  const note = area("task-note", "", 2);
  const add = async () => {
    const name = set.value.trim();
    const [asked, wanted] = [question.value, answer.value];
    const task = { question: asked, answer: wanted, grader: grader.value, note: note.value, run: run.run };
    const got = await source.addTask(name, task);
    keep();
    const twice = got.same ? ` It had ${many(got.same, "task")} with this question before.` : "";
    done(form, name, `has the question now.${twice}`);
    onAdded();
  };
  const form = html`<form method="dialog" onsubmit=${submitting(add)}>${where}
    ${field("Question", question)}${field("Expected answer", answer)}${how}${field("Note", note)}
    ${closeButtons("Add")}</form>`;
  openDialog("small", "Add to a data set", form);
  answer.focus();
};

export const datasetsPage = async (place, source, name) => {
  if (!name) {
    const about = 'Questions with expected answers. To add one, open a run and press "Add to a data set".';
    const words = (each) => `${many(each.tasks, "task")}${each.problem ? ` · ${flat(each.problem)}` : ""}`;
    const { datasets } = await source.datasets();
    return listPage(place, "datasets", about, datasets.map((each) => [[each.name], words(each)]));
  }
  const drawTask = (task) => {
    const before = typeof task.answer === "string" ? task.answer : JSON.stringify(task.answer ?? "");
    const answer = html`<textarea rows="2" aria-label="Expected answer to ${flat(task.question, 60)}"></textarea>`;
    answer.value = before;
    answer.addEventListener("input", () => {
      save.hidden = answer.value === before;
    });
    const { line, digest } = task;
    const change = (changes) =>
      doing(item, async () => draw(await source.changeTask(name, { line, digest, ...changes })));
    const save = button("Save", () => change({ answer: answer.value }), { hidden: true });
    const ask = ({ target }) => {
      if (target.textContent === "Remove") target.textContent = "Really remove?";
      else change({ remove: true });
    };
    const about = `line ${line} · ${task.grader || "exact"}${task.note ? ` · ${task.note}` : ""}`;
    const remove = { class: "act refuse", "aria-label": `Remove ${flat(task.question, 60)}` };
    const item = html`<li class="task"><p><bdi>${shown(task.question)}</bdi></p>${answer}
      <div class="buttons"><small class="quiet">${shown(about)}</small>
        ${task.run && link("run", `#/runs/${encodeURIComponent(task.run)}`, { class: "act" })}${save}
        ${button("Remove", ask, remove)}</div></li>`;
    return item;
  };
  const draw = (found) => {
    const twice = found.twice.map((each) => flat(each, 80)).join(" · ");
    const download = link("Download", source.datasetFile(name), { class: "act", download: "" });
    place.replaceChildren(html`<header class="run-head">${improveTabs("datasets")}<h1 tabindex="-1">${shown(name)}</h1>
        <p>Compare agents on it: <code>${shown(`plait compare ${found.file}`)}</code></p>
        <div class="buttons">${download}</div></header>
      ${found.problems.map((each) => problem(new Error(`${each} Plait leaves it as it is.`)))}
      ${twice && html`<p class="warning">Asked more than once: ${shown(twice)}</p>`}
      <ul class="plain-list">${found.tasks.slice(0, 1000).map(drawTask)}</ul>`);
  };
  draw(await source.dataset(name));
  document.title = `${name} · Plait`;
};
