"""A run that keeps a note and dies right after the note is in the store: python memory_script.py JOURNAL die|resume"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import plait
from cli_support import action, final
from plait.journal.notes import Notes
from plait.journal.store import is_address

journal, how = sys.argv[1:]
model = plait.Scripted([action("write_note", {"text": "Ada likes tea."}), final("Kept.")])
agent = plait.Agent("react", model=model, tools=["memory:likes"], journal=journal)
write = Notes.write


async def write_and_die(*given: Any, **named: Any) -> Any:
    await write(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)


if how == "die":
    Notes.write = write_and_die  # type: ignore[method-assign]
    agent.run("Remember.", user="ada")
print(agent.resume("last", force=is_address(journal)).answer)
