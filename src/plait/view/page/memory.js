// The notes that agents keep across sessions: to see, change and remove.
import { area, doing } from "./acts.js";
import { bdi, button, flat, line, link, many, runAddress, when } from "./dom.js";
import { html } from "./html.js";
import { long } from "./text.js";

export const memoryPage = async (place, source) => {
  const drawNote = ({ name, owner }, note) => {
    const change = (text) =>
      doing(item, async () => draw(await source.changeNote({ memory: name, owner, id: note.id, was: note.text, text })));
    const about = flat(note.text, 60);
    const show = (body, ...buttons) => {
      const facts = [
        when(note.at), note.run ? link("run", runAddress(note.run)) : null,
        note.outside && html`<span title="The run had read content from outside before, and strangers may have caused
          the note. A run that reads it has read such content.">from outside</span>`,
      ];
      item.replaceChildren(html`${body}${line("facts-line", ...facts.filter(Boolean))}
        <div class="buttons">${buttons}</div>`);
    };
    const read = () => {
      const ask = ({ target }) => {
        if (target.textContent === "Forget") target.textContent = "Really forget?";
        else change(null);
      };
      const label = (word) => ({ class: word === "Forget" ? "act refuse" : "act", "aria-label": `${word} ${about}` });
      show(long([note.text, 0], { className: "prose", label: "note" }), button("Edit", edit, label("Edit")),
        button("Forget", ask, label("Forget")));
    };
    const edit = () => {
      const text = area(`note-${note.id}`, note.text, Math.min(12, 2 + (note.text.length >> 6)));
      text.setAttribute("aria-label", `Text of the note ${about}`);
      const back = () => {
        read();
        item.querySelector("button").focus();
      };
      show(text, button("Save", () => change(text.value), { class: "main-act" }), button("Back", back));
      text.focus();
    };
    const item = html`<li class="task"></li>`;
    read();
    return item;
  };
  const draw = ({ memories, all }) => {
    const section = (each) => html`<section class="memory"><h2>${bdi(each.name)}</h2>
      ${line("facts-line", all && (each.owner ? html`user ${bdi(each.owner)}` : "no user"), many(each.notes.length, "note"))}
      <ul class="plain-list">${each.notes.map((note) => drawNote(each, note))}</ul></section>`;
    place.replaceChildren(html`<header><h1 tabindex="-1">Memory</h1></header>
      <p class="quiet">${all ? "Notes that agents keep across sessions, each for one user." :
        "Notes that agents keep about you across sessions. No other user's agents read them."}</p>
      ${memories.map(section)}
      ${!memories.length && html`<p>There are none yet. An agent with the tools <code>memory:NAME</code> keeps notes.</p>`}`);
  };
  draw(await source.notes());
  document.title = "Memory · Plait";
};
