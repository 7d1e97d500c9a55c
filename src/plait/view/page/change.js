// What a fork changes: a form with all that a run has, of which only the changed fields are sent; and the fork itself.
import { area, field, select, submitting } from "./acts.js";
import { closeButtons, flat, many, money, number, openDialog, pageAddress, shown } from "./dom.js";
import { html } from "./html.js";

const LIMITS = { steps: "Steps", calls: "Model calls", tokens: "Tokens", usd: "USD", seconds: "Seconds" };

const group = (words, isOpen, ...inside) =>
  html`<details class="group" open=${isOpen}><summary>${words}</summary>${inside}</details>`;
const pairsIn = (control, what) =>
  control.value.split("\n").filter((each) => each.trim()).map((each) => {
    const [name, ...value] = each.split("=");
    if (!name.trim() || !value.join("=").trim()) throw new Error(`${each}: ${what}.`);
    return [name.trim(), value.join("=").trim()];
  });
// The text of a control, null if it is the one before. A control has other line ends than a text may have.
const editedIn = (control, before) => (control.value === before.replace(/\r\n?/g, "\n") ? null : control.value);

// The values that are not those before, as lines of a control.
const linesOf = (values, before) => {
  const changed = Object.entries(values).filter(([key, value]) => `${value}` !== `${before(key)}`);
  return changed.map((each) => each.join("=")).join("\n");
};

// What of an agent can change, as parts of a form. `read()` returns the changes; it throws for a wrong field. The fields
// begin with what the run `tried` has; its seconds may be those of the server.
const agentParts = (about, now, tried = now) => {
  const isNew = tried.model !== now.model, isSameLoop = tried.loop === now.loop;
  const model = html`<input id="fork-model" type="text" autocomplete="off" placeholder=${now.model} list="fork-known"
    value=${isNew && tried.model}>`;
  const known = html`<datalist id="fork-known">${about.choices.models.map((each) => html`<option value=${each}></option>`)}
    </datalist>`;
  const models = area("fork-models", linesOf(tried.models, (phase) => (isNew ? tried.model : now.models[phase])), 2);
  const options = area("fork-options", isSameLoop ? linesOf(tried.options, (key) => now.options[key]) : "", 2);
  const others = about.loops.filter((each) => each !== now.loop);
  const loop = select("fork-loop", [["", `as it was (${now.loop})`], ...others], isSameLoop ? "" : tried.loop);
  const instructions = area("fork-instructions", tried.instructions, 4);
  const texts = { ...now.prompts, ...(isSameLoop ? tried.prompts : {}) };
  const name = select("fork-prompt", Object.keys(texts), `${now.loop}/system`);
  const text = area("fork-prompt-text", texts[name.value], 10);
  name.addEventListener("change", () => {
    text.value = texts[name.value];
  });
  text.addEventListener("input", () => {
    texts[name.value] = text.value;
    name.selectedOptions[0].textContent = `${name.value}${text.value === now.prompts[name.value] ? "" : " (changed)"}`;
  });
  const limits = Object.keys(LIMITS).map((key) => [
    key,
    html`<input id="fork-${key}" type="number" min="0" step="any" placeholder="no limit"
      value=${(key === "seconds" ? now : tried).limits[key]}>`,
  ]);
  const limitField = ([key, control]) =>
    field(LIMITS[key], control, now.most[key] === null ? "" : `At most ${number(now.most[key])}`);
  const phase = Object.keys(now.models)[0] || "reply";
  const nodes = [
    field("Model", model, "Leave empty to keep it."),
    known,
    field("Instructions", instructions),
    group("More", false,
      field("Models by phase", models, `One per line, such as ${phase}=local. They override the model above.`),
      field("Loop", loop),
      field("Options of the loop", options, "One per line, such as max_parse_errors=5. Leave empty to keep them."),
      html`<div class="selects">${limits.map(limitField)}</div>`,
      field("Prompt templates of the loop (advanced)", name),
      field("Template", text, "It may use what the built-in prompts use. Another loop has prompts of its own."),
    ),
  ];
  const read = () => {
    const values = limits.map(([key, control]) => [key, control.value === "" ? null : Number(control.value)]);
    const given = values.filter(([key, value]) => value !== now.limits[key]);
    const pairs = pairsIn(options, "an option is written as name=value");
    return {
      model: model.value.trim() || null,
      models: Object.fromEntries(pairsIn(models, "a phase's model is written as phase=model")),
      loop: loop.value || null,
      options: Object.fromEntries(pairs.map(([key, value]) => [key.replaceAll("-", "_"), value])),
      instructions: editedIn(instructions, now.instructions),
      prompts: Object.fromEntries(Object.entries(texts).filter(([key, value]) => value !== now.prompts[key])),
      limits: given.length ? Object.fromEntries(given) : undefined, // left out
    };
  };
  return { nodes, read };
};

// What a fork does again, in words.
const warning = ({ effects, approve }) => {
  const tools = effects.map((each) => flat(each, 40)).join(", ");
  const asks = ["effects", "always"].includes(approve);
  const then = asks ? "Each such call waits for approval." : "This agent asks for no approval.";
  return tools && html`<p class="warning">A fork makes calls again: ${tools} may change something. ${then}</p>`;
};

// The dialog of a fork from a step. `focus`: "question", or the key of a call whose result is edited.
export const forkDialog = async (source, run, step, focus = "") => {
  const [about, now] = await Promise.all([source.about(), source.changeable(run.run)]);
  const agent = agentParts(about, now);
  const question = area("fork-question", now.question);
  const results = now.calls.map((call) => {
    const control = area(`fork-result-${call.key}`, call.text ?? "", 4);
    control.disabled = call.text === null;
    const given = flat(typeof call.input === "string" ? call.input : JSON.stringify(call.input ?? ""), 60);
    const label = html`<bdi>${shown(`${call.tool} ${given}`)}</bdi> in step ${call.step}`;
    return [call, control, field(label, control, call.text === null ? "It is too long to be edited here." : "")];
  });
  const none = html`<p class="quiet">The steps that are kept have no result.</p>`;
  const showKept = () => {
    for (const [call, , node] of results) node.hidden = call.step >= at.valueAsNumber;
    none.hidden = results.some(([, , node]) => !node.hidden);
  };
  const at = html`<input id="fork-at" type="number" min="1" value=${step} required oninput=${showKept}>`;
  const fork = async () => {
    const kept = results.filter(([call]) => call.step < at.valueAsNumber);
    const edited = kept.filter(([call, control]) => editedIn(control, call.text ?? "") !== null);
    const got = await source.fork(run.run, {
      at: at.valueAsNumber,
      question: editedIn(question, now.question),
      results: Object.fromEntries(edited.map(([call, control]) => [call.key, control.value])),
      ...agent.read(),
    });
    dialog.close();
    location.hash = pageAddress("sides", run.run, got.run);
  };
  const [, result] = results.find(([call]) => call.key === focus) || [];
  const form = html`<form method="dialog" onsubmit=${submitting(fork)}>
    <p class="quiet">A new run keeps the steps before this one and runs the rest again. This run does not change.</p>
    ${field("Run again from step", at)}
    ${group("Question", focus === "question", field("Task or question", question))}
    ${group("Results of the steps before", Boolean(result), none, results.map(([, , node]) => node))}
    ${agent.nodes}${warning(now)}${closeButtons("Run again")}</form>`;
  showKept();
  const dialog = openDialog("large", "Change and run again", form);
  const wanted = focus === "question" ? question : result || at;
  wanted.focus();
  wanted.scrollIntoView({ block: "nearest" });
};

// The page that begins a change over runs: those of the address, by `run` or by the filters of the list.
// `like`: the fork whose change is tried, on the newest runs that match and are no forks.
export const newChangePage = async (place, source, { run = [], like = "", ...filters }) => {
  const isFit = (each) => !each.parent && !["running", "waiting", "queued"].includes(each.status);
  const newest = like ? (await source.runs({ ...filters, limit: 60 })).runs.filter(isFit).slice(0, 20) : [];
  const runs = like ? newest.map((each) => each.run) : [run].flat();
  const found = await source.estimate(runs, runs.length ? {} : filters);
  if (!found.runs.length) throw new Error("None of these runs has ended.");
  const [about, now, tried] = await Promise.all(
    [source.about(), source.changeable(found.runs[0]), like ? source.changeable(like) : undefined],
  );
  const agent = agentParts(about, now, tried);
  const isPriced = found.unpriced < found.runs.length;
  const cost = isPriced ? `about ${money(found.cost)} at the old model's price` : "at an unknown price";
  const left = found.left_out
    ? ` ${many(found.left_out, "run")} that did not end, or that are child runs, are left out.`
    : "";
  const begin = async () => {
    const got = await source.beginChange({ change: agent.read(), runs: found.runs });
    location.hash = pageAddress("changes", got.name);
  };
  place.replaceChildren(html`<header><h1 tabindex="-1">Run a change over ${many(found.runs.length, "run")}</h1></header>
    <p class="quiet">Each run is made again from step 1 with what you change here; ${found.most} runs at most.${left}
      The cost is the recorded cost of these runs. The fields show what the first run has.</p>
    <form class="change" aria-label="The change" onsubmit=${submitting(begin)}>
      ${agent.nodes}${warning({ ...now, effects: found.effects })}
      <div class="buttons last">
        <button type="submit" class="main-act">Run ${many(found.runs.length, "fork")}, ${cost}</button></div></form>`);
  document.title = "Run a change · Plait";
};
