// The user's actions on a run: answer, resume and cancel; and what forms share.
import { button, problem } from "./dom.js";
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

// The form of what a run waits for. The answer names the question that the form shows: never one that came since.
export const waitForm = (source, run, item, question, reopen) => {
  const isPlan = item.ask === "plan";
  const rowsOf = (text, more) => Math.min(20, text.split("\n").length + more);
  const text = html`<textarea id="answer-${item.id}" rows=${isPlan ? rowsOf(item.text[0], 2) : 2}></textarea>`;
  if (isPlan) text.spellcheck = false;
  const stay = (event) => event.preventDefault();
  const place = html`<form class="answer" aria-label="Answer the run" onsubmit=${stay}></form>`;
  const send = async (answer, wrong = "") => {
    await doing(place, async () => {
      if (wrong) throw new Error(wrong);
      await source.resume(run.run, { answer, question });
      await reopen();
    });
    if (wrong) text.focus();
  };
  const unlessEmpty = (wrong) => send(text.value, text.value.trim() ? "" : wrong);
  const sendInput = () => {
    let wrong = "";
    try {
      JSON.parse(text.value);
    } catch (error) {
      wrong = `That is no JSON: ${error.message}`;
    }
    send(`edit ${text.value}`, wrong);
  };
  const draw = (label, hint, ...buttons) =>
    place.replaceChildren(html`${label && field(label, text, hint)}<div class="buttons">${buttons}</div>`);
  const write = (value, label, hint, ...buttons) => {
    text.value = value;
    draw(label, hint, ...buttons, button("Back", back));
    text.focus();
  };

  if (item.ask === "question") {
    const reply = () => unlessEmpty("Write an answer first.");
    draw("Your answer", "", button("Reply", reply, { type: "submit", class: "main-act" }));
    return place;
  }
  const act = (words, work, more = "") => button(words, work, { class: `main-act ${more}` });
  const approve = act(isPlan ? "Approve the plan" : "Approve", () => send("yes"), "approve");
  const refuse = () => send(text.value.trim() || "no");
  const edit = () => {
    if (isPlan) {
      const done = act("Carry out as edited", () => unlessEmpty("The plan is empty."));
      const hint = "Steps keep their form. What is no plan is told to the planner as words.";
      write(item.text[1] ? "" : item.text[0], "The plan, edited", hint, done);
    } else {
      text.rows = rowsOf(item.given, 1);
      const hint = "JSON. The call is made with it, and the model is told.";
      write(item.given, "The call's input, edited", hint, act("Make the call as edited", sendInput));
    }
  };
  const say = () => {
    const hint = "Empty refuses the plan without a word.";
    write("", "What to change, or why not", hint, act("Refuse", refuse, "refuse"));
  };
  const start = () => {
    const label = isPlan ? "" : "If not: why, or what to do instead";
    const buttons = [approve, (isPlan || item.given) && button("Edit", edit)];
    text.value = "";
    buttons.push(button("Refuse", isPlan ? say : refuse, { class: "refuse" }));
    draw(label, "Told to the model when you refuse.", buttons);
  };
  const back = () => {
    start();
    approve.focus();
  };
  start();
  return place;
};

// `may` is what the server says that this user may do with the run.
export const actsOf = (source, run, reopen, may) => {
  const go = (work) => () =>
    doing(place, async () => {
      await work();
      await reopen();
    });
  const show = () => {
    const form = document.querySelector("form.answer");
    form?.scrollIntoView({ block: "center" });
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
