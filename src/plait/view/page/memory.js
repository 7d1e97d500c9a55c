// The notes that agents keep across sessions: to see, change and remove.
import { area, doing } from "./acts.js";
import { bdi, button, flat, line, link, many, runAddress, when } from "./dom.js";
import { html } from "./html.js";
import { long } from "./text.js";

const OUTSIDE = "The run had read content from outside before, so strangers may have caused the note.";
const EMPTY = html`<p>There are none yet. An agent with the tools <code>memory:NAME</code> keeps notes.</p>`;

export const memoryPage = async (place, source) => {
  const drawNote = ({ name, owner }, note) => {
    const about = flat(note.text, 60), item = html`<li></li>`;
    const facts = [when(note.at), note.run && link("run", runAddress(note.run)),
      note.outside && html`<span title=${OUTSIDE}>from outside</span>`].filter(Boolean);
    const change = (text) => doing(item, async () => {
      draw(await source.changeNote({ memory: name, owner, id: note.id, was: note.text, text }));
    });
    const act = (word, work, kind = "act") => button(word, work, { class: kind, "aria-label": `${word} ${about}` });
    const show = (body, ...buttons) =>
      item.replaceChildren(html`${body}${line("facts-line", ...facts)}<div class="buttons">${buttons}</div>`);
    const forget = ({ target }) => {
      if (target.textContent === "Forget") target.textContent = "Really forget?";
      else change(null);
    };
    const read = () => show(long([note.text, 0], { className: "prose", label: "note" }), act("Edit", edit),
      act("Forget", forget, "act refuse"));
    const edit = () => {
      const text = area(`note-${note.id}`, note.text, Math.min(12, 2 + (note.text.length >> 6)));
      text.setAttribute("aria-label", `Text of the note ${about}`);
      show(text, act("Save", () => change(text.value), "main-act"), act("Back", read));
      text.focus();
    };
    read();
    return item;
  };
  const draw = ({ memories, all }) => {
    const section = (each) => html`<section class="memory"><h2>${bdi(each.name)}</h2>
      ${line("facts-line", all && (each.owner ? html`user ${bdi(each.owner)}` : "no user"), many(each.notes.length, "note"))}
      <ul class="plain-list">${each.notes.map((note) => drawNote(each, note))}</ul></section>`;
    const whose = all ? "each for one user" : "about you. No other user's agents read them";
    place.replaceChildren(html`<header><h1 tabindex="-1">Memory</h1></header>
      <p class="quiet">Notes that agents keep across sessions, ${whose}.</p>${memories.map(section)}
      ${!memories.length && EMPTY}`);
  };
  draw(await source.notes());
  document.title = "Memory · Plait";
};
