// HTML that the server made of Markdown (../markdown.py): the only markup of others that these pages ever read.
import { announce, button } from "./dom.js";
import { html } from "./html.js";
import { long } from "./text.js";

export const copyButton = (from, label, words = "Copy") => {
  const copy = async () => {
    try {
      if (navigator.clipboard) await navigator.clipboard.writeText(from());
      else {
        // Without TLS, a page of another machine has only the old way.
        const area = html`<textarea></textarea>`;
        area.value = from();
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      control.textContent = "Copied";
      announce("Copied.");
    } catch {
      control.textContent = "Not allowed";
    }
    setTimeout(() => (control.textContent = words), 2000);
  };
  const control = button(words, copy, { class: "act", "aria-label": label });
  return control;
};

// The nodes of a piece of HTML, with what only a script can add.
export const nodesOf = (markup) => {
  const template = document.createElement("template");
  template.innerHTML = markup;
  for (const each of template.content.querySelectorAll(".code-block")) {
    const code = each.querySelector("code");
    each.append(copyButton(() => code.textContent, "Copy the code"));
  }
  // What scrolls must be reached by the keyboard.
  for (const each of template.content.querySelectorAll("pre, .md-table"))
    Object.assign(each, { tabIndex: 0, role: "group", ariaLabel: each.matches("pre") ? "Code" : "Table" });
  return [...template.content.childNodes];
};

// An answer that grows: `grow({from, blocks})` replaces the blocks from `from` on, `end(markup)` the whole.
export class Answer {
  place = html`<div class="md"></div>`;
  blocks = []; // each with its HTML and its element
  whole = "";

  grow({ from, blocks }) {
    for (const each of this.blocks.splice(from)) each.node.remove();
    for (const markup of blocks) {
      const node = html`<div class="block">${nodesOf(markup)}</div>`;
      this.blocks.push({ markup, node });
      this.place.append(node);
    }
    this.whole = this.blocks.map((each) => each.markup).join("");
  }

  end(markup) {
    if (markup === this.whole) return;
    Object.assign(this, { whole: markup, blocks: [] });
    this.place.replaceChildren(...nodesOf(markup));
  }
}

// The answer of a run: formatted, if the server found Markdown in it (`answer_html`), and exactly as it was written.
export const answerOf = ({ answer, answer_html: markup }, label = "answer") => {
  const asText = () => long([answer, 0], { className: "prose", label });
  if (!markup) return asText();
  const formatted = html`<div class="md" tabindex="0" role="region" aria-label="All of the ${label}"></div>`;
  formatted.append(...nodesOf(markup));
  const body = html`<div>${formatted}</div>`;
  const turn = () => {
    const isText = control.getAttribute("aria-pressed") !== "true";
    control.setAttribute("aria-pressed", String(isText));
    body.replaceChildren(isText ? asText() : formatted);
  };
  const control = button("As text", turn, { class: "act", "aria-pressed": "false", title: "Exactly as it was written" });
  return html`${body}${control}`;
};
