// The plan that a model keeps while it works (toolkits/todo_list.py): its last state, as a list.
import { shown } from "./dom.js";
import { html } from "./html.js";

const STATES = { "[ ]": ["○", "pending"], "[>]": ["●", "in progress"], "[x]": ["✓", "completed"] };

// `text`: "1 of 2 done", then a line for each task.
export const todoList = (text) => {
  const [head, ...lines] = text.split("\n");
  const task = (each) => {
    const [sign, state] = STATES[each.slice(0, 3)] || ["·", ""];
    return html`<li class="is-${state.replace(" ", "-")}"><span role="img" aria-label=${state}>${sign}</span>
      <bdi>${shown(each.slice(4))}</bdi></li>`;
  };
  return html`<div class="todo"><p>${shown(head.split(",")[0])}</p><ol>${lines.map(task)}</ol></div>`;
};

// Draws the newest plan among the items of a run, if it is another one than is there.
export const drawTodo = (place, items) => {
  const last = [...items].filter((each) => each.kind === "note" && each.word === "todo").at(-1);
  if (!last || place.dataset.of === last.text[0]) return;
  place.dataset.of = last.text[0];
  place.replaceChildren(html`<section class="todo-box" aria-label="Plan">${todoList(last.text[0])}</section>`);
};
