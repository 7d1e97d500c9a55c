"""The office of a task: tools that read its texts, tools with effects, and what they did.

What is read depends on the task alone, never on earlier calls. So a run can be resumed in another process.
"""

from __future__ import annotations

import threading
from typing import Any

from plait.core import Call
from plait.core.errors import BadInput, ToolError
from plait.lab.injections.values import InjectedTask, OfficeCall
from plait.tools import Tool, tool


class Office:
    """The office of one run: `tools`, and `done`, the calls with effects that were made, in order.

    `clean` leaves out the injected texts.
    """

    def __init__(self, task: InjectedTask, *, clean: bool = False) -> None:
        self.task = task
        self.done: list[OfficeCall] = []
        self._clean = clean
        self._lock = threading.Lock()
        self.tools: tuple[Tool, ...] = (*self._reading_tools(), *self._effect_tools())

    def name_arguments(self, call: Call) -> OfficeCall | None:
        """Return a call with its arguments by name; None for one that no tool of the office takes."""
        made = next((each for each in self.tools if each.name == call.tool), None)
        if made is None:
            return None
        try:
            args, kwargs = made.bind(call.input)
        except (BadInput, ToolError):
            return None
        return OfficeCall(call.tool, {**dict(zip(made.signature.names, args, strict=False)), **kwargs})

    def _reading_tools(self) -> tuple[Tool, ...]:
        """Return the tools that read the task's texts, those of strangers among them."""
        read, reads = self._read, tool(read_only=True, open_world=True)

        @reads
        def read_mail(number: int) -> str:
            """Reads a mail of the inbox."""
            return read("read_mail", number)

        @reads
        def open_page(address: str) -> str:
            """Opens a web page."""
            return read("open_page", address)

        @reads
        def read_document(name: str) -> str:
            """Reads a document of the office."""
            return read("read_document", name)

        @reads
        def find_contact(name: str) -> str:
            """Finds the address of a person."""
            return read("find_contact", name)

        def foreign(tool_name: str) -> Tool:
            def take_text(text: str) -> str:
                return read(tool_name, text)

            about = self.task.fill(self.task.described[tool_name], clean=self._clean)
            return tool(name=tool_name, description=about, read_only=True, open_world=True, foreign=True)(take_text)

        own: tuple[Tool, ...] = (read_mail, open_page, read_document, find_contact)
        needed = {key.partition(" ")[0] for key in self.task.texts}
        return (*(each for each in own if each.name in needed), *map(foreign, self.task.described))

    def _read(self, name: str, given: int | str) -> str:
        wanted = f"{name} {given}".casefold().strip()
        texts = {key.casefold(): text for key, text in self.task.texts.items()}
        if wanted in texts:
            return self.task.fill(texts[wanted], clean=self._clean)
        if name == "open_page":  # a request to any address is made, whatever is there
            return "This page is empty."
        known = [key.partition(" ")[2] for key in self.task.texts if key.startswith(f"{name} ")]
        raise ToolError(f"{name} finds nothing for {given!r}.", hint=f"It finds: {', '.join(known)}.")

    def _effect_tools(self) -> tuple[Tool, ...]:
        @tool
        def send_mail(to: str, subject: str, text: str) -> str:
            """Sends a mail to an address."""
            return self._do("send_mail", to=to, subject=subject, text=text)

        @tool
        def pay_invoice(account: str, amount: float, reference: str) -> str:
            """Pays an amount in euros to an account."""
            return self._do("pay_invoice", account=account, amount=amount, reference=reference)

        @tool
        def share_document(name: str, address: str) -> str:
            """Shares a document of the office with a mail address."""
            return self._do("share_document", name=name, address=address)

        @tool
        def delete_document(name: str) -> str:
            """Deletes a document of the office."""
            return self._do("delete_document", name=name)

        @tool
        def post_note(text: str) -> str:
            """Posts a note on the public notice board."""
            return self._do("post_note", text=text)

        return (send_mail, pay_invoice, share_document, delete_document, post_note)

    def _do(self, called: str, /, **given: Any) -> str:
        with self._lock:
            self.done.append(OfficeCall(called, given))
            return f"Done: {called} ({len(self.done)})."
