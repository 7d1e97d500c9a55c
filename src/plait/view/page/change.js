// What a fork changes: a form with all that a run has, of which only the changed fields are sent; and the fork itself.
import { field } from "./acts.js";
import { openDialog } from "./improve.js";
import { button, flat, make, many, number, problem, shown } from "./dom.js";

const LIMITS = { steps: "Steps", calls: "Model calls", tokens: "Tokens", usd: "USD", seconds: "Seconds" };

const area = (id, value = "", rows = 3) => {
  const made = make("textarea", { id, rows, spellcheck: "false" });
  made.value = value;
  return made;
};
const group = (words, isOpen, ...inside) => make("details.group", { open: isOpen }, make("summary", {}, words), inside);
const pairsIn = (control, what) =>
  control.value
    .split("\n")
    .filter((each) => each.trim())
    .map((each) => {
      const [name, ...value] = each.split("=");
      if (!name.trim() || !value.join("=").trim()) throw new Error(`${each}: ${what}.`);
      return [name.trim(), value.join("=").trim()];
    });

// What of an agent can change, as parts of a form. `read()` returns the changed fields alone; it throws for a wrong one.
const agentParts = (about, now) => {
  const model = make("input", { id: "fork-model", type: "text", autocomplete: "off", placeholder: now.model });
  const models = area("fork-models", "", 2);
  const options = area("fork-options", "", 2);
  const loop = make(
    "select",
    { id: "fork-loop" },
    make("option", { value: "" }, `as it was (${now.loop})`),
    about.loops.filter((each) => each !== now.loop).map((each) => make("option", { value: each }, each)),
  );
  const instructions = area("fork-instructions", now.instructions, 4);
  const texts = { ...now.prompts };
  const names = Object.keys(texts);
  const name = make(
    "select",
    { id: "fork-prompt" },
    names.map((each) => make("option", { value: each }, each)),
  );
  const text = area("fork-prompt-text", "", 10);
  const showPrompt = () => {
    text.value = texts[name.value] ?? "";
  };
  text.addEventListener("input", () => {
    texts[name.value] = text.value;
    name.selectedOptions[0].textContent = `${name.value}${text.value === now.prompts[name.value] ? "" : " (changed)"}`;
  });
  name.addEventListener("change", showPrompt);
  name.value = names.find((each) => each === `${now.loop}/system`) || names[0] || "";
  showPrompt();
  const limits = Object.entries(LIMITS).map(([key, label]) => {
    const [value, most] = [now.limits[key], now.most[key]];
    const control = make("input", {
      id: `fork-${key}`,
      type: "number",
      min: "0",
      step: "any",
      placeholder: "no limit",
    });
    control.value = value ?? "";
    return [key, control, field(label, control, most === null ? "" : `At most ${number(most)}`)];
  });
  const phase = Object.keys(now.models)[0] || "reply";
  const nodes = [
    group("Instructions", true, field("Instructions for the model, beside the prompts", instructions)),
    group(
      "Model and loop",
      true,
      field("Model for all phases", model, "Leave empty to keep the models."),
      field("Models by phase", models, `One per line, such as ${phase}=local. They override the model for all phases.`),
      field("Loop", loop),
      field("Options of the loop", options, "One per line, such as max_parse_errors=5. Leave empty to keep them."),
    ),
    group(
      "Prompts of the loop",
      false,
      field("Prompt", name),
      field("Template", text, "It may use what the built-in prompts use. Another loop has prompts of its own."),
    ),
    group(
      "Limits",
      false,
      make(
        "div.selects",
        {},
        limits.map(([, , node]) => node),
      ),
    ),
  ];
  const read = () => {
    const body = {};
    if (model.value.trim()) body.model = model.value.trim();
    if (loop.value) body.loop = loop.value;
    const phases = pairsIn(models, "a phase's model is written as phase=model");
    if (phases.length) body.models = Object.fromEntries(phases);
    const said = pairsIn(options, "an option is written as name=value").map(([key, value]) => [
      key.replaceAll("-", "_"),
      value,
    ]);
    if (said.length) body.options = Object.fromEntries(said);
    if (instructions.value !== now.instructions) body.instructions = instructions.value;
    const changed = Object.entries(texts).filter(([key, value]) => value !== now.prompts[key]);
    if (changed.length) body.prompts = Object.fromEntries(changed);
    const given = limits
      .map(([key, control]) => [key, control.value === "" ? null : Number(control.value)])
      .filter(([key, value]) => value !== now.limits[key]);
    if (given.length) body.limits = Object.fromEntries(given);
    return body;
  };
  return { nodes, read };
};

// What a fork does again, in words.
const warning = (now) => {
  if (!now.effects.length) return null;
  const asks = ["effects", "always"].includes(now.approve);
  const tools = now.effects.map((each) => flat(each, 40)).join(", ");
  return make(
    "p.warning",
    {},
    `A fork makes calls again: ${tools} may change something. `,
    asks ? "Each such call waits for approval." : "This agent asks for no approval.",
  );
};

// The dialog of a fork from a step. `focus`: "question", or the key of a call whose result is edited.
export const forkDialog = async (source, run, step, focus = "") => {
  const [about, now] = await Promise.all([source.about(), source.changeable(run.run)]);
  const agent = agentParts(about, now);
  const at = make("input", { id: "fork-at", type: "number", min: "1", value: step, required: true });
  const question = area("fork-question", now.question, 3);
  const results = now.calls.map((call) => {
    const control = area(`fork-result-${call.key}`, call.text ?? "", 4);
    control.disabled = call.text === null;
    const given = flat(typeof call.input === "string" ? call.input : JSON.stringify(call.input ?? ""), 60);
    const label = [make("bdi", {}, shown(`${call.tool} ${given}`)), ` in step ${call.step}`];
    return [call, control, field(label, control, call.text === null ? "It is too long to be edited here." : "")];
  });
  const none = make("p.quiet", {}, "The steps that are kept have no result.");
  const kept = () => {
    for (const [call, , node] of results) node.hidden = call.step >= Number(at.value);
    none.hidden = results.some(([, , node]) => !node.hidden);
  };
  at.addEventListener("input", kept);
  const form = make("form", { method: "dialog" });
  const isResult = results.some(([call]) => call.key === focus);
  form.append(
    make("p.quiet", {}, "A new run keeps the steps before this one and runs the rest again. This run does not change."),
    field("Run again from step", at),
    group("Question", focus === "question", field("Task or question", question)),
    group(
      "Results of the steps before",
      isResult,
      none,
      results.map(([, , node]) => node),
    ),
    ...agent.nodes,
    ...[warning(now)].filter(Boolean),
    make(
      "div.buttons.last",
      {},
      make("button.main-act", { type: "submit" }, "Fork"),
      button("Close", () => dialog.close()),
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    form.querySelector(".problem")?.remove();
    const send = form.querySelector(".main-act");
    send.disabled = true;
    try {
      const body = { at: Number(at.value), ...agent.read() };
      if (question.value !== now.question) body.question = question.value;
      const edited = results.filter(([call, control]) => call.step < body.at && control.value !== (call.text ?? ""));
      if (edited.length) body.results = Object.fromEntries(edited.map(([call, control]) => [call.key, control.value]));
      const got = await source.fork(run.run, body);
      dialog.close();
      location.hash = `#/sides/${encodeURIComponent(run.run)}/${encodeURIComponent(got.run)}`;
    } catch (error) {
      form.querySelector(".last").before(problem(error));
    } finally {
      send.disabled = false;
    }
  });
  kept();
  const dialog = openDialog("large", "Fork this run", form);
  const wanted = focus === "question" ? question : form.querySelector(`#${CSS.escape(`fork-result-${focus}`)}`) || at;
  wanted.focus();
  wanted.scrollIntoView({ block: "nearest" });
};

// The page that begins a change over runs: those of the address, by `run` or by the filters of the list.
export const newChangePage = async (place, source, { run = [], ...filters }) => {
  const found = await source.estimate(run.length ? { runs: [run].flat() } : { filters });
  if (!found.runs.length) throw new Error("None of these runs has ended.");
  const [about, now] = await Promise.all([source.about(), source.changeable(found.runs[0])]);
  const agent = agentParts(about, now);
  const form = make("form.change", { "aria-label": "The change" });
  const cost = found.unpriced === found.runs.length ? "unknown" : `about ${found.cost.toPrecision(3)} USD`;
  const sure = make("input", { type: "checkbox", id: "sure", required: true });
  form.append(
    ...agent.nodes,
    ...[warning({ ...now, effects: found.effects })].filter(Boolean),
    make(
      "p.sure",
      {},
      sure,
      " ",
      make("label", { for: "sure" }, `Run ${many(found.runs.length, "fork")}; cost: ${cost}`),
    ),
    make("div.buttons.last", {}, make("button.main-act", { type: "submit" }, "Run the change")),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    form.querySelector(".problem")?.remove();
    try {
      const got = await source.beginChange({ change: agent.read(), runs: found.runs });
      location.hash = `#/changes/${encodeURIComponent(got.name)}`;
    } catch (error) {
      form.querySelector(".last").before(problem(error));
    }
  });
  const left = found.left_out
    ? ` ${many(found.left_out, "run")} that did not end, or that are child runs, are left out.`
    : "";
  place.replaceChildren(
    make("header", {}, make("h1", { tabindex: "-1" }, `Run a change over ${many(found.runs.length, "run")}`)),
    make(
      "p.quiet",
      {},
      `Each run is made again from step 1 with what you change here, at most ${found.most} at once.${left} `,
      "The cost is estimated from the recorded runs. The fields show what the first run has.",
    ),
    form,
  );
  document.title = "Run a change · Plait";
};
