// HTML that the server made of Markdown (../markdown.py): the only markup that these pages ever read.
import { announce, button, make } from "./dom.js";

const copy = async (from, control) => {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(from());
    else {
      // Without TLS, a page of another machine has only the old way.
      const area = make("textarea");
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
  setTimeout(() => {
    control.textContent = "Copy";
  }, 2000);
};
export const copyButton = (from, label) => {
  const control = button("Copy", () => copy(from, control), { class: "act", "aria-label": label });
  return control;
};

// The nodes of a piece of HTML, with what only a script can add.
export const nodesOf = (html) => {
  const template = document.createElement("template");
  template.innerHTML = html;
  const inside = template.content;
  for (const each of inside.querySelectorAll(".code-block")) {
    const code = each.querySelector("code");
    each.append(copyButton(() => code.textContent, "Copy the code"));
  }
  // What scrolls must be reached by the keyboard.
  for (const each of inside.querySelectorAll("pre, .md-table")) {
    each.setAttribute("tabindex", "0");
    each.setAttribute("role", "group");
    each.setAttribute("aria-label", each.matches("pre") ? "Code" : "Table");
  }
  return [...inside.childNodes];
};

// An answer that grows: `grow({from, blocks})` replaces the blocks from `from` on, `end(html)` the whole.
export class Answer {
  constructor() {
    this.place = make("div.md");
    this.blocks = [];
    this.html = "";
  }

  grow({ from, blocks }) {
    for (const each of this.blocks.splice(from)) each.remove();
    for (const html of blocks) {
      const block = make("div.block", { "data-html": html }, nodesOf(html));
      this.blocks.push(block);
      this.place.append(block);
    }
    this.html = this.blocks.map((each) => each.dataset.html).join("");
  }

  end(html) {
    if (html === this.html) return;
    this.html = html;
    this.blocks = [];
    this.place.replaceChildren(...nodesOf(html));
  }
}
