// The data sets: files of questions with expected answers, to which runs are added.
import { area, doing, field, select, submitting } from "./acts.js";
import { button, flat, link, many, problem, shown } from "./dom.js";
import { html } from "./html.js";
import { closeButtons, improveTabs, listPage, openDialog } from "./improve.js";

// The dialog that adds a run's question and answer to a data set.
export const addTaskDialog = async (source, run) => {
  const { datasets, graders } = await source.datasets();
  const last = sessionStorage.getItem("plait-dataset") || datasets[0]?.name || "tests";
  const set = html`<input id="task-set" type="text" value=${last} required list="task-sets" autocomplete="off">`;
  const question = area("task-question", run.question);
  const answer = Object.assign(area("task-answer", run.answer || ""), { required: true });
  const grader = select("task-grader", graders);
  const note = area("task-note", "", 2);
  const add = async () => {
    const name = set.value.trim();
    const [asked, wanted] = [question.value, answer.value];
    const task = { question: asked, answer: wanted, grader: grader.value, note: note.value, run: run.run };
    const got = await source.addTask(name, task);
    sessionStorage.setItem("plait-dataset", name);
    const twice = got.same ? ` It had ${many(got.same, "task")} with this question before.` : "";
    form.replaceChildren(html`<p role="status">${link(name, `#/datasets/${encodeURIComponent(name)}`)}
      has the question now.${twice}</p>${closeButtons()}`);
    form.querySelector("button").focus();
  };
  const form = html`<form method="dialog" onsubmit=${submitting(add)}>${field("Data set", set)}
    <datalist id="task-sets">${datasets.map((each) => html`<option value=${each.name}></option>`)}</datalist>
    ${field("Question", question)}${field("Expected answer", answer)}
    ${field("How answers are compared with it", grader)}${field("Note", note)}${closeButtons("Add")}</form>`;
  openDialog("small", "Add to a data set", form);
  answer.focus();
};

export const datasetsPage = async (place, source, name) => {
  if (!name) {
    const about = "A data set is a file of questions with expected answers. Add runs to it from their pages.";
    const words = (each) => `${many(each.tasks, "task")}${each.problem ? ` · ${flat(each.problem)}` : ""}`;
    const { datasets } = await source.datasets();
    return listPage(place, "datasets", about, datasets.map((each) => [each.name, words(each)]));
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
