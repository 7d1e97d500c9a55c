(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);

  const { html } = module_html;
  const number = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 2 });
  const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
  const usd = (value) => (value === null ? "price not known" : `${Number(value.toPrecision(4))} USD`);

  // -- what is pointed at, in words

  const tip = $("tip");
  const hide = () => {
    tip.hidden = true;
  };
  const show = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const room = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(x + 14, innerWidth - room.width - 8));
    const below = y + 18 + room.height < innerHeight - 4;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? y + 18 : Math.max(4, y - room.height - 12)}px`;
  };
  addEventListener("scroll", hide, { passive: true, capture: true });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });

  // -- pictures

  const views = new Map();
  const tooltip = (_, event, __, value) => (value ? show(String(value), event.clientX, event.clientY) : hide());
  const draw = async (plot) => {
    views.get(plot)?.finalize();
    plot.replaceChildren();
    try {
      views.set(plot, await window.drawPicture(plot, JSON.parse($(plot.dataset.spec).textContent), tooltip));
      plot.dataset.drawn = String(Math.max(160, plot.clientWidth));
    } catch (error) {
      plot.textContent = "This picture could not be drawn.";
      console.error(error);
    }
  };
  const plots = [...document.querySelectorAll(".plot")];
  const drawAll = async (force) => {
    for (const plot of plots) {
      if (force || plot.dataset.drawn !== String(Math.max(160, plot.clientWidth))) await draw(plot);
    }
    document.documentElement.dataset.drawn = "all";
  };
  let drawing = Promise.resolve();
  const again = (force) => {
    delete document.documentElement.dataset.drawn;
    drawing = drawing.then(() => drawAll(force));
  };
  let soon;
  addEventListener("resize", () => {
    clearTimeout(soon);
    soon = setTimeout(() => again(false), 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => again(true));
  again(true);

  // -- the grid

  const grid = $("grid");
  const buttons = grid ? [...grid.querySelectorAll("button.cell")] : [];
  const across = data.contenders.length;
  const of = (button) => ({
    task: data.tasks[button.dataset.t],
    contender: data.contenders[button.dataset.c],
    runs: data.runs.filter((run) => run.t === Number(button.dataset.t) && run.c === Number(button.dataset.c)),
  });
  const short = (text) => (text.length > 300 ? `${text.slice(0, 300)}…` : text);
  const told = (run) => {
    const words = `${data.repeat > 1 ? `${run.r + 1}: ` : ""}${data.outcomes[run.outcome]}`;
    const said = `${run.answer === null ? "said why" : "answer"}: ${short(run.answer ?? run.reason) || "nothing"}`;
    return `${words}\n  ${said}${run.why ? `\n  ${run.why}` : ""}`;
  };
  const tell = (button, x, y) => {
    const { task, contender, runs: there } = of(button);
    const all = there.length ? there.map(told).join("\n") : "not finished";
    show(`${task.id} · ${contender}\n${all}\nright is: ${short(task.gold)}`, x, y);
  };
  if (buttons.length) {
    buttons[0].tabIndex = 0;
    const move = (button) => {
      for (const each of buttons) if (each.tabIndex === 0) each.tabIndex = -1;
      button.tabIndex = 0;
      button.focus();
    };
    grid.addEventListener("keydown", (event) => {
      const at = buttons.indexOf(event.target);
      if (at < 0 || event.altKey || event.metaKey) return;
      const [start, last] = [at - (at % across), buttons.length - 1];
      const to = {
        ArrowRight: at % across < across - 1 ? at + 1 : at,
        ArrowLeft: at % across ? at - 1 : at,
        ArrowDown: at + across <= last ? at + across : at,
        ArrowUp: at >= across ? at - across : at,
        Home: event.ctrlKey ? 0 : start,
        End: event.ctrlKey ? last : start + across - 1,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      move(buttons[to]);
    });
    const button = (event) => event.target.closest?.("button.cell");
    grid.addEventListener("mouseover", (event) =>
      button(event) ? tell(button(event), event.clientX, event.clientY) : hide(),
    );
    grid.addEventListener("mouseleave", hide);
    grid.addEventListener("focusin", (event) => {
      if (!button(event)?.matches(":focus-visible")) return;
      const room = event.target.getBoundingClientRect();
      requestAnimationFrame(() => tell(event.target, room.left, room.bottom - 10));
    });
    grid.addEventListener("focusout", hide);
    grid.addEventListener("click", (event) => {
      if (!button(event)) return;
      move(button(event));
      hide();
      open(button(event));
    });
  }

  // -- a record

  const dialog = $("record");
  const open = (button) => {
    const { task, contender, runs: there } = of(button);
    $("record-title").textContent = `${task.id} · ${contender}`;
    fill(task, there, 0);
    dialog.showModal();
    dialog.scrollTop = 0;
    $("record-title").focus();
  };
  $("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });

  const joined = (...parts) => parts.filter(Boolean).join(", ");
  const factsOf = (run) => ({
    Answer: run.answer ?? "none",
    Outcome: joined(
      data.outcomes[run.outcome],
      run.mark !== run.outcome && run.mark,
      run.score > 0 && run.score < 1 && `score ${number(run.score)}`,
      run.status !== "answered" && run.status !== run.outcome && `the run ${run.status}`,
    ),
    Why: run.why,
    Reason: run.reason,
    Took: joined(
      many(run.steps, "step"),
      many(run.calls, "call"),
      `${run.about ? "about " : ""}${number(run.in)} tokens in and ${number(run.out)} out`,
      `${number(run.s)} s`,
      usd(run.usd),
    ),
    Remarks: joined(
      run.repairs && many(run.repairs, "format repair"),
      run.invented && many(run.invented, "invented value"),
      run.fell && "fell back to another loop",
    ),
    Run: run.run,
    "Judged by": run.judge,
  });
  const recordOf = (run) => {
    const command = html`<code>plait show ${run.run}</code>`;
    if (run.held === 2) return html`<p><a href="${data.at}${encodeURIComponent(run.run)}">Open the run</a></p>`;
    if (run.held === 1) return JSON.parse($(`record-${run.run}`).textContent).steps.map((step) => stepOf(step, run));
    if (run.held === 0) return html`<p>The record is left out to keep this file small. To see it: ${command}</p>`;
    return html`<p>The record of this run could not be read when the page was made. To try again: ${command}</p>`;
  };
  const fill = (task, there, at) => {
    const run = there[at];
    const body = $("record-body");
    const tab = (each, i) => {
      const choose = () => {
        fill(task, there, i);
        body.querySelector(`[aria-pressed="true"]`).focus();
      };
      return html`<button type="button" aria-pressed=${String(i === at)} onclick=${choose}>
        Repeat ${each.r + 1}: ${each.outcome}</button>`;
    };
    const facts = Object.entries({ Question: task.question, "Right is": task.gold, ...(run ? factsOf(run) : {}) });
    const isTabbed = data.repeat > 1 && run;
    body.replaceChildren(html`
      ${isTabbed && html`<div class="tabs" role="group" aria-label="Repeats">${there.map(tab)}</div>`}
      <dl class="about">${facts.map(([name, value]) => value && html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
      ${run ? recordOf(run) : html`<p>This run is not finished: it has no record here.</p>`}`);
  };
  const WORDS = { trouble: "error", call: "call", reply: "reply" };
  const stepOf = (step, run) => {
    const what = [
      step.phases.join(", "),
      step.models.join(", "),
      step.in || step.out ? `${number(step.in)} tokens in, ${number(step.out)} out` : "",
      step.s ? `${number(step.s)} s` : "",
    ].filter(Boolean);
    const part = ([kind, name, text, missing]) => {
      const cut = `Cut here: ${number(missing)} more characters. All of it: plait show ${run.run}`;
      return html`<div class="part ${kind}"><b>${[WORDS[kind] || kind, name].filter(Boolean).join(" · ")}</b>
        <pre>${text}</pre>${missing > 0 && html`<em>${cut}</em>`}</div>`;
    };
    const title = step.n ? `Step ${step.n}` : "Before the first step";
    return html`<h3>${title}<small>${what.join(" · ")}</small></h3>${step.parts.map(part)}`;
  };
})();
