// Messages that users send to a run while it goes on: on the page of the run, and in the chat.
import { shown } from "./dom.js";
import { html } from "./html.js";

const STATES = { taken: "read", waiting: "read before the next step", late: "not read: the run had ended" };

export const sendTo = async (source, run, { text, chosen }) => {
  if (chosen.length) throw new Error("A run that goes on takes no files. Remove them, or send them with the next message.");
  await source.sendTo(run, text);
};

export const sentPlace = () => html`<ul class="meanwhile" aria-label="Messages while it worked"></ul>`;

// Draws what was sent to a run, with what became of it. Returns what it did not read.
export const drawSent = async (source, run, place, keep = (work) => work()) => {
  const sent = await source.sent(run);
  const drawn = sent.map((each) => html`<li><span class="said-by-you"><bdi>${shown(each.text)}</bdi></span>
    <span class="quiet">${STATES[each.state]}</span></li>`);
  keep(() => place.replaceChildren(...drawn));
  return sent.filter((each) => each.state === "late");
};

// Whether a run has taken a message.
export const hasTaken = (news) => news.steps?.some((step) => step.items.some((item) => item.word === "message"));
