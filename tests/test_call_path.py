"""The path from the command to the request stays short."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MOST = 11
"""Stack frames of ours between the command and the POST, both included."""

PROGRAM = """
import os, sys
from pathlib import Path
import plait
from plait.cli.main import main
from plait.models import http

def write_frames(*args):
    frame, ours = sys._getframe(1), Path(plait.__file__).parent
    while frame is not None:
        if Path(frame.f_code.co_filename).is_relative_to(ours):
            print(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}", flush=True)
        frame = frame.f_back
    os._exit(0)

http._url = write_frames
sys.argv = ["plait", "run", "2+2?", "--model", "openai:m", "--tools", "calculator"]
main()
"""


def test_a_request_is_at_most_eleven_of_our_frames_from_the_command(tmp_path: Path) -> None:
    env = {**os.environ, "OPENAI_API_KEY": "sk-of-the-test", "PLAIT_JOURNAL": str(tmp_path / "journal.db")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, env=env, capture_output=True, text=True)
    frames = [word for word in done.stderr.split() if ".py:" in word]
    assert frames[:1] == ["http.py:post"] and frames[-1:] == ["main.py:main"], done.stderr
    assert len(frames) <= MOST, frames
