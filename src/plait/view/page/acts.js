// The user's actions on a run: answer, resume and cancel.
import { button, make, problem } from "./dom.js";

// Does it once: the buttons rest while it is being done, and what went wrong is said beside them.
export const doing = async (place, work) => {
  const controls = [...place.querySelectorAll("button, textarea, input, select")].filter((each) => !each.disabled);
  controls.forEach((each) => {
    each.disabled = true;
  });
  place.querySelector(".problem")?.remove();
  try {
    return await work();
  } catch (error) {
    place.append(problem(error));
    return null;
  } finally {
    controls.forEach((each) => {
      each.disabled = false;
    });
  }
};

export const field = (label, control, hint = "") => {
  if (hint) control.setAttribute("aria-describedby", `${control.id}-hint`);
  return make(
    "div.field",
    {},
    make("label", { for: control.id }, label),
    control,
    hint ? make("p.hint", { id: `${control.id}-hint` }, hint) : null,
  );
};

// The form of what a run waits for. The answer names the question that the form shows: never one that came since.
export const waitForm = (source, run, item, question, reopen) => {
  const area = make("textarea", {
    id: `answer-${item.id}`,
    rows: item.ask === "plan" ? Math.min(20, item.text[0].split("\n").length + 2) : 2,
    spellcheck: item.ask === "plan" ? "false" : null,
  });
  const place = make("form.answer", { "aria-label": "Answer the run" });
  const send = (answer) =>
    doing(place, async () => {
      await source.resume(run.run, { answer, question });
      await reopen();
    });
  const words = () => area.value.trim();
  const missing = (what) => {
    place.querySelector(".problem")?.remove();
    place.append(problem(new Error(what)));
    area.focus();
  };
  place.addEventListener("submit", (event) => event.preventDefault());
  if (item.ask === "question") {
    const reply = button("Reply", () => (words() ? send(area.value) : missing("Write an answer first.")), {
      type: "submit",
      class: "main-act",
    });
    place.append(field("Your answer", area), make("div.buttons", {}, reply));
    return place;
  }
  const approve = button(item.ask === "plan" ? "Approve the plan" : "Approve", () => send("yes"), {
    class: "main-act approve",
  });
  if (item.ask === "plan") {
    const begin = () => {
      const edited = button("Carry out as edited", () => (words() ? send(area.value) : missing("The plan is empty.")), {
        class: "main-act",
      });
      area.value = item.text[1] ? "" : item.text[0];
      place.replaceChildren(
        field("The plan, edited", area, "Steps keep their form. What is no plan is told to the planner as words."),
        make("div.buttons", {}, edited, button("Back", back)),
      );
      area.focus();
    };
    const refuse = () => {
      area.value = "";
      place.replaceChildren(
        field("What to change, or why not", area, "Empty refuses the plan without a word."),
        make(
          "div.buttons",
          {},
          button("Refuse", () => send(words() || "no"), { class: "main-act refuse" }),
          button("Back", back),
        ),
      );
      area.focus();
    };
    const back = () => {
      place.replaceChildren(
        make("div.buttons", {}, approve, button("Edit", begin), button("Refuse", refuse, { class: "refuse" })),
      );
      approve.focus();
    };
    place.append(
      make("div.buttons", {}, approve, button("Edit", begin), button("Refuse", refuse, { class: "refuse" })),
    );
    return place;
  }
  const refuse = button("Refuse", () => send(words() || "no"), { class: "refuse" });
  const usual = () => {
    const edit = item.given ? button("Edit", begin) : null;
    place.replaceChildren(
      field("If not: why, or what to do instead", area, "Told to the model when you refuse."),
      make("div.buttons", {}, approve, edit, refuse),
    );
  };
  const begin = () => {
    const edited = button(
      "Make the call as edited",
      () => {
        try {
          JSON.parse(area.value);
        } catch (error) {
          return missing(`That is no JSON: ${error.message}`);
        }
        return send(`edit ${area.value}`);
      },
      { class: "main-act" },
    );
    area.value = item.given;
    area.rows = Math.min(20, item.given.split("\n").length + 1);
    place.replaceChildren(
      field("The call's input, edited", area, "JSON. The call is made with it, and the model is told."),
      make(
        "div.buttons",
        {},
        edited,
        button("Back", () => {
          area.value = "";
          usual();
          approve.focus();
        }),
      ),
    );
    area.focus();
  };
  usual();
  return place;
};

// `may` is what the server says that this user may do with the run.
export const actsOf = (source, run, reopen, may) => {
  const place = make("div.buttons");
  const go = (work) =>
    doing(place, async () => {
      await work();
      await reopen();
    });
  if (run.status === "running" && run.owner === "here" && may.change)
    place.append(button("Cancel", () => go(() => source.cancel(run.run)), { class: "refuse cancel" }));
  if (run.status === "running" && run.owner === "elsewhere")
    place.append(make("span.quiet", {}, "Performed by another process: it can only be cancelled there."));
  if (run.status === "waiting" && may.answer)
    place.append(
      button(
        "Answer it",
        () => {
          const form = document.querySelector("form.answer");
          form?.scrollIntoView({ block: "center" });
          form?.querySelector("textarea, button").focus({ preventScroll: true });
        },
        { class: "main-act" },
      ),
    );
  if (["interrupted", "cancelled", "crashed"].includes(run.status) && may.change)
    place.append(button("Resume", () => go(() => source.resume(run.run, {})), { class: "main-act resume" }));
  return [place];
};
