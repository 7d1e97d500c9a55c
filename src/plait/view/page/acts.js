// The user's actions on a run: answer, resume and cancel; and what forms share.
import { button, fieldsOf, flat, problem } from "./dom.js";
import { html } from "./html.js";

// Does it once: the controls rest while it is being done, and what went wrong is said beside them. Returns null then.
export const doing = async (place, work) => {
  const controls = [...place.querySelectorAll("button, textarea, input, select")].filter((each) => !each.disabled);
  const focused = document.activeElement;
  const disable = (isOff) => {
    for (const each of controls) each.disabled = isOff;
  };
  place.querySelector(".problem")?.remove();
  disable(true);
  try {
    return await work();
  } catch (error) {
    place.insertBefore(problem(error), place.querySelector(":scope > .last"));
    return null;
  } finally {
    disable(false);
    if (place.contains(focused) && document.activeElement === document.body) focused.focus({ preventScroll: true });
  }
};

// What a form does when it is submitted.
export const submitting = (work) => (event) => {
  event.preventDefault();
  return doing(event.target, work);
};

export const field = (label, control, hint = "") => {
  if (hint) control.setAttribute("aria-describedby", `${control.id}-hint`);
  return html`<div class="field"><label for=${control.id}>${label}</label>${control}
    ${hint && html`<p class="hint" id="${control.id}-hint">${hint}</p>`}</div>`;
};
export const area = (id, value = "", rows = 3) =>
  Object.assign(html`<textarea id=${id} rows=${rows} spellcheck="false"></textarea>`, { value });
// `options`: values, or pairs of a value and what is shown for it.
export const select = (id, options, now = "") =>
  html`<select id=${id}>${options.map((each) => {
    const [value, words = value] = [each].flat();
    return html`<option value=${value} selected=${value === now}>${words}</option>`;
  })}</select>`;

// What a user typed, as a value of the kind of `now`. Throws what is wrong with it, in plain words.
const readValue = (name, text, now) => {
  if (typeof now === "string") return text;
  if (typeof now === "boolean") return text === "true";
  if (typeof now === "number") {
    const typed = text.trim();
    if (!/^[+-]?\d+([.,]\d+)?$/.test(typed)) throw new Error(`${name} must be a number, such as 39.9.`);
    if (/,\d{3}$/.test(typed)) throw new Error(`${name}: write 1000 or 1.0, because 1,000 can mean both.`);
    if (/\d{16}/.test(typed)) throw new Error(`${name} has too many digits here. Write it as JSON.`);
    return Number(typed.replace(",", "."));
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} must be JSON: texts in double quotes, lists in [ ], objects in { }.`);
  }
};

// What is below an open question: its form, or who may answer it. `may`: see `actsOf`.
export const waitPart = (source, run, item, question, reopen, may) => {
  const isQuestion = item.ask === "question";
  if (isQuestion ? may.answer : may.approve) return waitForm(source, run, item, question, reopen);
  return html`<p class="quiet">It waits for a user with the role ${isQuestion ? "change" : "approve"}.</p>`;
};

// The form of what a run waits for. The answer names the question that the form shows: never one that came since.
const waitForm = (source, run, item, question, reopen) => {
  const isPlan = item.ask === "plan";
  const rowsOf = (text, more) => Math.min(20, text.split("\n").reduce((n, each) => n + 1 + (each.length >> 6), more));
  const id = `answer-${item.id}`;
  const place = html`<form class="answer" aria-label="Answer the run"></form>`;
  place.addEventListener("submit", (event) => event.preventDefault());
  // What was wrong is over when the text changes.
  place.addEventListener("input", () => place.querySelector(":scope > .problem")?.remove());
  const send = (read) => doing(place, () => source.resume(run.run, { answer: read(), question }).then(reopen));
  const main = (words, read, as = "") => button(words, () => send(read), { type: "submit", class: `main-act ${as}` });
  const draw = (fields, ...buttons) => place.replaceChildren(html`${fields}<div class="buttons">${buttons}</div>`);
  const open = (fields, ...buttons) => {
    draw(fields, ...buttons, button("Back", () => start().focus()));
    place.querySelector("textarea, input, select")?.focus();
  };
  const needed = (text, wrong) => () => {
    if (text.value.trim()) return text.value;
    throw new Error(wrong);
  };

  if (item.ask === "question") {
    const text = area(id, "", 2);
    draw(field("Your answer", text), main("Reply", needed(text, "Write an answer first.")));
    return place;
  }
  const given = item.given && fieldsOf(item.given);
  const edited = (value) => (value === item.given ? "yes" : `edit ${value}`);
  const changeJson = (value) => {
    const text = area(id, value, rowsOf(value, 1));
    const read = () => {
      readValue("The input", text.value);
      return edited(text.value.trim());
    };
    const hint = "The call is made with this, and the model is told.";
    open(field("The inputs, as JSON", text, hint), main("Approve with these inputs", read));
  };
  const changeFields = () => {
    const controls = given.map(([name, now], i) => {
      const value = typeof now === "string" ? now : JSON.stringify(now, null, 1);
      if (typeof now === "boolean") return select(`${id}-${i}`, [["true", "yes"], ["false", "no"]], value);
      if (typeof now === "number") return html`<input id="${id}-${i}" value=${value} inputmode="decimal">`;
      return area(`${id}-${i}`, value, rowsOf(value, 0));
    });
    const before = controls.map((each) => each.value);
    const read = () => {
      const isChanged = controls.map((each, i) => each.value !== before[i]);
      const valueOf = ([name, now], i) => (isChanged[i] ? readValue(name, controls[i].value, now) : now);
      const values = given.map((each, i) => [each[0], valueOf(each, i)]);
      return isChanged.includes(true) ? JSON.stringify(Object.fromEntries(values)) : item.given;
    };
    const asJson = () => doing(place, async () => changeJson(read()));
    const fields = given.map(([name], i) => field(flat(name, 60), controls[i]));
    open(fields, main("Approve with these inputs", () => edited(read())), button("As JSON", asJson));
  };
  const changePlan = () => {
    const text = area(id, item.text[1] ? "" : item.text[0], rowsOf(item.text[0], 2));
    const hint = "Keep the form of the steps. The planner reads anything else as a comment.";
    open(field("The plan", text, hint), main("Approve with this plan", needed(text, "The plan is empty.")));
  };
  const refuse = () => {
    const text = area(id, "", 2);
    const label = isPlan ? "What to change, or why not" : "Why, or what to do instead";
    const hint = "The model reads this. You can leave it empty.";
    open(field(label, text, hint), main("Refuse", () => text.value.trim() || "no", "refuse"));
  };
  const change = isPlan ? changePlan : given ? changeFields : () => changeJson(item.given);
  const start = () => {
    const approve = main(isPlan ? "Approve the plan" : "Approve", () => "yes", "approve");
    const buttons = [approve, (isPlan || item.given) && button("Change", change)];
    draw(null, ...buttons, button("Refuse", refuse, { class: "refuse" }));
    return approve;
  };
  start();
  return place;
};

// `may` is what the server says that this user may do with the run.
export const actsOf = (source, run, reopen, may) => {
  const go = (work) => () => doing(place, () => work().then(reopen));
  const show = () => {
    const form = document.querySelector("form.answer"), step = form?.closest(".step");
    // The whole step, so that the call is seen that the question is about; only the question where that is too long.
    (step?.offsetHeight < innerHeight * 0.8 ? step : form?.closest(".item"))?.scrollIntoView({ block: "start" });
    form?.querySelector("textarea, button").focus({ preventScroll: true });
  };
  const { status, owner } = run;
  const place = html`<div class="buttons"></div>`;
  if (status === "running" && owner === "here" && may.change)
    place.append(button("Cancel", go(() => source.cancel(run.run)), { class: "refuse cancel" }));
  if (status === "running" && owner === "elsewhere")
    place.append(html`<span class="quiet">Performed by another process: it can only be cancelled there.</span>`);
  if (status === "waiting" && may.answer) place.append(button("Answer it", show, { class: "main-act" }));
  if (["interrupted", "cancelled", "crashed"].includes(status) && may.change)
    place.append(button("Resume", go(() => source.resume(run.run, {})), { class: "main-act resume" }));
  return [place];
};
