// Where a message is written: text, files that are chosen, pasted or dropped, and the agent it goes to.
import { button, flat, make, problem, shown } from "./dom.js";

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
  const canvas = make("canvas", { width: 96, height: 96, role: "img", "aria-label": flat(file.name, 80) });
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

export class Composer {
  // `send({text, files})` sends, `stop()` stops; `draft` has get() and set(text).
  constructor({ send, stop, draft, label = "Message" }) {
    Object.assign(this, { files: [], onSend: send, draft, kept: [] });
    this.area = make(
      "textarea",
      { id: "message", rows: 1, placeholder: "Write a message", "aria-label": label, enterkeyhint: "send" },
    );
    this.chips = make("ul.files.attached", { "aria-label": "Attached files" });
    this.wrong = make("div");
    this.choose = make("input", { type: "file", multiple: true, hidden: true, id: "files", "aria-label": "Files" });
    this.sender = button("Send", () => this.send(), { class: "main-act", type: "submit" });
    this.stopper = button("Stop", stop, { class: "stop", hidden: true });
    this.left = make(
      "div.composer-left", {}, button("Attach", () => this.choose.click(), { "aria-label": "Attach files" }),
      this.choose,
    );
    this.place = make(
      "form.composer", { "aria-label": label }, this.chips, this.area, this.wrong,
      make("div.composer-bar", {}, this.left, make("div.buttons", {}, this.stopper, this.sender)),
    );
    this.place.addEventListener("submit", (event) => event.preventDefault());
    this.area.addEventListener("input", () => this.changed());
    this.area.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    this.area.addEventListener("paste", (event) => {
      if (!event.clipboardData.files.length) return;
      event.preventDefault();
      this.add(event.clipboardData.files);
    });
    this.choose.addEventListener("change", () => {
      this.add(this.choose.files);
      this.choose.value = "";
    });
  }

  // Takes files that are dropped anywhere in an element.
  takeDrops(target) {
    const has = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
    target.addEventListener("dragover", (event) => {
      if (!has(event)) return;
      event.preventDefault();
      this.place.classList.add("dropping");
    });
    target.addEventListener("dragleave", () => this.place.classList.remove("dropping"));
    target.addEventListener("drop", (event) => {
      this.place.classList.remove("dropping");
      if (!has(event)) return;
      event.preventDefault();
      this.add(event.dataTransfer.files);
    });
  }

  changed() {
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(this.area.scrollHeight + 2, innerHeight * 0.4)}px`;
    this.draft?.set(this.area.value);
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
    const remove = (list, each) => () => {
      list.splice(list.indexOf(each), 1);
      this.drawFiles();
      this.area.focus();
    };
    const chip = (list) => (each) =>
      make(
        "li", {}, each.picture, make("bdi", {}, shown(flat(each.name || "file", 60))),
        button("×", remove(list, each), { class: "act", "aria-label": `Remove ${flat(each.name || "file", 60)}` }),
      );
    this.chips.replaceChildren(...this.kept.map(chip(this.kept)), ...this.files.map(chip(this.files)));
    this.chips.hidden = !this.chips.children.length;
  }

  async send() {
    const text = this.area.value;
    if (this.sender.disabled || (!text.trim() && !this.files.length && !this.kept.length)) return;
    this.sender.disabled = true;
    try {
      const contents = await Promise.all(this.files.map((each) => read(each.file)));
      const files = this.files.map(({ name }, i) => ({ name, content: contents[i] }));
      await this.onSend({ text, files, chosen: this.files });
    } catch (error) {
      this.wrong.replaceChildren(problem(error));
    } finally {
      this.sender.disabled = false;
    }
  }

  // While a run goes on, the conversation takes no message.
  going(status) {
    const goes = status === "running" || status === "queued" || status === "waiting";
    this.stopper.hidden = !goes;
    this.sender.hidden = goes;
    this.area.placeholder = status === "waiting" ? "Answer the question above first" : "Write a message";
  }
}
