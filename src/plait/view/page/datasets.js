// The data sets: files of questions with expected answers, to which runs are added.
import { field } from "./acts.js";
import { button, flat, link, make, many, problem, shown } from "./dom.js";
import { improveTabs, listPage, openDialog } from "./improve.js";

const chooser = (graders) =>
  make(
    "select",
    { id: "task-grader" },
    graders.map((each) => make("option", { value: each }, each)),
  );

// The dialog that adds a run's question and answer to a data set.
export const addTaskDialog = async (source, run) => {
  const { datasets, graders } = await source.datasets();
  const input = (tag, id, value, more = {}) => {
    const made = make(tag, { id, ...more });
    made.value = value;
    return made;
  };
  const last = sessionStorage.getItem("plait-dataset") || datasets[0]?.name || "tests";
  const name = input("input", "task-set", last, {
    type: "text",
    required: true,
    list: "task-sets",
    autocomplete: "off",
  });
  const question = input("textarea", "task-question", run.question, { rows: 3 });
  const answer = input("textarea", "task-answer", run.answer || "", { rows: 3, required: true });
  const note = input("textarea", "task-note", "", { rows: 2 });
  const grader = chooser(graders);
  const form = make(
    "form",
    { method: "dialog" },
    field("Data set", name),
    make(
      "datalist",
      { id: "task-sets" },
      datasets.map((each) => make("option", { value: each.name })),
    ),
    field("Question", question),
    field("Expected answer", answer),
    field("How answers are compared with it", grader),
    field("Note", note),
    make(
      "div.buttons.last",
      {},
      make("button.main-act", { type: "submit" }, "Add"),
      button("Close", () => dialog.close()),
    ),
  );
  const dialog = openDialog("small", "Add to a data set", form);
  const closed = new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "added"));
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    form.querySelector(".problem")?.remove();
    const task = {
      question: question.value,
      answer: answer.value,
      grader: grader.value,
      note: note.value,
      run: run.run,
    };
    try {
      const got = await source.addTask(name.value.trim(), task);
      sessionStorage.setItem("plait-dataset", name.value.trim());
      const twice = got.same ? ` It had ${many(got.same, "task")} with this question before.` : "";
      form.replaceChildren(
        make(
          "p",
          { role: "status" },
          link(name.value.trim(), `#/datasets/${encodeURIComponent(name.value.trim())}`),
          ` has the question now.${twice}`,
        ),
        make(
          "div.buttons",
          {},
          button("Close", () => dialog.close("added")),
        ),
      );
      form.querySelector("button").focus();
    } catch (error) {
      form.querySelector(".last").before(problem(error));
    }
  });
  answer.focus();
  return closed;
};

export const datasetsPage = async (place, source, name) => {
  if (!name) {
    const about = "A data set is a file of questions with expected answers. Add runs to it from their pages.";
    const words = (each) => `${many(each.tasks, "task")}${each.problem ? ` · ${flat(each.problem)}` : ""}`;
    return listPage(
      place,
      "datasets",
      about,
      (await source.datasets()).datasets.map((each) => [each.name, words(each)]),
    );
  }
  const draw = (found) => {
    const row = (task) => {
      const answer = make("textarea", { rows: 2, "aria-label": `Expected answer to ${flat(task.question, 60)}` });
      const before = typeof task.answer === "string" ? task.answer : JSON.stringify(task.answer ?? "");
      answer.value = before;
      const keep = async (changes) => {
        place.querySelector(".problem")?.remove();
        try {
          draw(await source.changeTask(name, { line: task.line, digest: task.digest, ...changes }));
        } catch (error) {
          place.querySelector("header").after(problem(error));
        }
      };
      const save = button("Save", () => keep({ answer: answer.value }), { hidden: true });
      answer.addEventListener("input", () => {
        save.hidden = answer.value === before;
      });
      const remove = button(
        "Remove",
        () => {
          if (remove.textContent === "Remove") remove.textContent = "Really remove?";
          else keep({ remove: true });
        },
        { class: "act refuse", "aria-label": `Remove ${flat(task.question, 60)}` },
      );
      return make(
        "li.task",
        {},
        make("p", {}, make("bdi", {}, shown(task.question))),
        answer,
        make(
          "div.buttons",
          {},
          make(
            "small.quiet",
            {},
            shown(`line ${task.line} · ${task.grader || "exact"}${task.note ? ` · ${task.note}` : ""}`),
          ),
          task.run ? link("run", `#/runs/${encodeURIComponent(task.run)}`, { class: "act" }) : null,
          save,
          remove,
        ),
      );
    };
    place.replaceChildren(
      make(
        "header.run-head",
        {},
        improveTabs("datasets"),
        make("h1", { tabindex: "-1" }, shown(name)),
        make("p", {}, "Compare agents on it: ", make("code", {}, shown(`plait compare ${found.file}`))),
        make("div.buttons", {}, link("Download", source.datasetFile(name), { class: "act", download: "" })),
      ),
      ...found.problems.map((each) => problem(new Error(`${each} Plait leaves it as it is.`))),
      found.twice.length
        ? make("p.warning", {}, shown(`Asked more than once: ${found.twice.map((each) => flat(each, 80)).join(" · ")}`))
        : "",
      make("ul.plain-list", {}, found.tasks.slice(0, 1000).map(row)),
    );
  };
  draw(await source.dataset(name));
  document.title = `${name} · Plait`;
};
