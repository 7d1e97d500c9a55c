// Where a message is written: text, files that are chosen, pasted or dropped, and the agent it goes to; and what became
// of messages to a run that goes on.
import { button, flat, problem, shown } from "./dom.js";
import { html } from "./html.js";

const LARGEST = 14 * 1024 * 1024;

const read = (file) =>
  new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => fail(new Error(`${file.name} can't be read.`));
    reader.readAsDataURL(file);
  });

// A small picture, drawn here: the page loads none from elsewhere.
const preview = async (file) => {
  const canvas = html`<canvas width="96" height="96" role="img" aria-label=${flat(file.name, 80)}></canvas>`;
  try {
    const picture = await createImageBitmap(file);
    const scale = Math.max(96 / picture.width, 96 / picture.height);
    const [width, height] = [picture.width * scale, picture.height * scale];
    canvas.getContext("2d").drawImage(picture, (96 - width) / 2, (96 - height) / 2, width, height);
    return canvas;
  } catch {
    return null;
  }
};

const SENT = { taken: "read", waiting: "read before the next step", late: "not read: the run had ended" };

export const sendTo = (source, run, { text, chosen }) => {
  if (!chosen.length) return source.sendTo(run, text);
  throw new Error("A run that goes on takes no files. Remove them, or send them with the next message.");
};
export const hasTaken = (news) => news.steps?.some((step) => step.items.some((item) => item.word === "message"));
export const sentPlace = () => html`<ul class="meanwhile" aria-label="Messages while it worked"></ul>`;
// Draws what was sent to a run. Returns what it did not read.
export const drawSent = async (source, run, place, keep = (work) => work()) => {
  const sent = await source.sent(run);
  const drawn = sent.map((each) => html`<li><span class="said-by-you"><bdi>${shown(each.text)}</bdi></span>
    <span class="quiet">${SENT[each.state]}</span></li>`);
  keep(() => place.replaceChildren(...drawn));
  return sent.filter((each) => each.state === "late");
};

export class Composer {
  // The attached files: {name, file, picture} of new ones, {name, digest} of those that the server has.
  files = [];

  // `onSend({text, files, kept, chosen})` gets the new files with their content, the digests of kept ones, and `files`;
  // `onStop()` stops the run, `onChange(text)` hears each change of the text. `id` and `label` are those of the text.
  constructor({ onSend, onStop, onChange = () => {}, id = "message", label = "Message", words = "Send" }) {
    Object.assign(this, { onSend, onChange });
    const pasted = (event) => this.take(event, event.clipboardData);
    const pressed = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    };
    const chosen = () => {
      this.add(this.choose.files);
      this.choose.value = "";
    };
    this.area = html`<textarea id=${id} rows="1" placeholder="Write a message" aria-label=${label} enterkeyhint="send"
      oninput=${() => this.changed()} onkeydown=${pressed} onpaste=${pasted}></textarea>`;
    this.chips = html`<ul class="files attached" aria-label="Attached files"></ul>`;
    this.wrong = html`<div></div>`;
    this.choose = html`<input type="file" multiple hidden aria-label="Files" onchange=${chosen}>`;
    this.sender = button(words, () => this.send(), { class: "main-act", type: "submit" });
    this.stopper = button("Stop", onStop, { class: "stop", hidden: true });
    this.attach = button("Attach", () => this.choose.click(), { "aria-label": "Attach files" });
    this.left = html`<div class="composer-left">${this.attach}${this.choose}</div>`;
    this.buttons = html`<div class="buttons">${this.stopper}${this.sender}</div>`;
    this.place = html`<form class="composer" aria-label=${label} onsubmit=${(event) => event.preventDefault()}>
      ${this.chips}${this.area}${this.wrong}<div class="composer-bar">${this.left}${this.buttons}</div></form>`;
  }

  // Takes files that are dropped anywhere in an element.
  takeDrops(target) {
    target.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      this.place.classList.add("dropping");
    });
    target.addEventListener("dragleave", () => this.place.classList.remove("dropping"));
    target.addEventListener("drop", (event) => {
      this.place.classList.remove("dropping");
      this.take(event, event.dataTransfer);
    });
  }

  take(event, { files }) {
    if (!files.length) return;
    event.preventDefault();
    this.add(files);
  }

  changed() {
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(this.area.scrollHeight + 2, innerHeight * 0.4)}px`;
    this.onChange(this.area.value);
  }

  put(text, files = []) {
    this.area.value = text;
    this.files = files;
    this.drawFiles();
    this.changed();
  }

  async add(files) {
    this.wrong.replaceChildren();
    for (const file of files) {
      if (file.size > LARGEST) this.wrong.replaceChildren(problem(new Error(`${file.name} is larger than 14 MB.`)));
      else {
        const picture = file.type.startsWith("image/") ? await preview(file) : null;
        this.files.push({ name: file.name || "pasted", file, picture });
      }
    }
    this.drawFiles();
    this.area.focus();
  }

  drawFiles() {
    const chip = (each) => {
      const name = flat(each.name || "file", 60);
      const remove = () => {
        this.files = this.files.filter((other) => other !== each);
        this.drawFiles();
        this.area.focus();
      };
      return html`<li>${each.picture}<bdi>${shown(name)}</bdi>
        ${button("×", remove, { class: "act", "aria-label": `Remove ${name}` })}</li>`;
    };
    this.chips.replaceChildren(...this.files.map(chip));
    this.chips.hidden = !this.files.length;
  }

  async send() {
    const { files: chosen } = this,
      text = this.area.value;
    if (this.sender.disabled || (!text.trim() && !chosen.length)) return;
    this.sender.disabled = true;
    try {
      const added = chosen.filter((each) => each.file);
      const files = await Promise.all(added.map(async ({ name, file }) => ({ name, content: await read(file) })));
      await this.onSend({ text, files, kept: chosen.flatMap((each) => each.digest ?? []), chosen });
    } catch (error) {
      this.wrong.replaceChildren(problem(error));
    } finally {
      this.sender.disabled = false;
    }
  }

  // While a run goes on, a message is one to it.
  going(status) {
    const goes = ["running", "queued", "waiting"].includes(status);
    this.stopper.hidden = !goes;
    this.sender.hidden = status === "waiting";
    this.attach.hidden = goes;
    const words = { waiting: "Answer the question above first", running: "Write to the agent while it works" };
    this.area.placeholder = words[status] || "Write a message";
  }
}
