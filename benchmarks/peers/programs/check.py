"""Runs the six programs of `examples/` and their counterparts, counts their lines, and kills the support agents.

    python check.py --venvs DIR      with the environments DIR/langchain, DIR/pydantic-ai and DIR/openai-agents

Each program asks a scripted endpoint on this machine. The first table has lines of code and whether the program did
what it should. The second one has how often an approved refund ran after the process was killed and resumed.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripted_endpoint import FILES, ScriptedEndpoint

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[2] / "examples"
FRAMEWORKS = {"langchain": "langchain", "pydantic_ai": "pydantic-ai", "openai_agents": "openai-agents"}
PROGRAMS = {
    "typed_extraction": ("pydantic_ai", "langchain"),
    "support_agent": ("pydantic_ai", "langchain"),
    "researcher": ("pydantic_ai", "openai_agents"),
    "coder": ("openai_agents", "langchain"),
    "chat_memory": ("openai_agents", "langchain"),
    "long_run": ("pydantic_ai", "langchain"),
}
CONTEXT = 16_000


def count_lines(path: Path) -> int:
    """The lines that hold code: no blank lines, comments and docstrings of the module."""
    text = path.read_text()
    first = ast.parse(text).body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    lines = text.splitlines()[first.end_lineno if is_docstring else 0 :]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


class Program:
    """One program of a framework ("plait" for ours), in a folder of its own."""

    def __init__(self, name: str, framework: str, venvs: Path, folder: Path) -> None:
        self.name, self.framework, self.folder = name, framework, folder
        self.is_ours = framework == "plait"
        self.path = EXAMPLES / f"{name}.py" if self.is_ours else HERE / f"{name}_{framework}.py"
        self.python = sys.executable if self.is_ours else str(venvs / FRAMEWORKS[framework] / "bin" / "python")
        folder.mkdir(parents=True)
        shutil.copytree(EXAMPLES / "documents", folder / "documents")

    def start(self, endpoint: ScriptedEndpoint, model: str, *words: str, **env: str) -> subprocess.Popen[str]:
        """Start the program, with its stdin and stdout as pipes."""
        config = self.folder / "plait.toml"
        config.write_text(f'[endpoints.loopback]\nbase_url = "{endpoint.url}"\ncontext_tokens = {CONTEXT}\n')
        ours = {"PLAIT_CONFIG": str(config), "PLAIT_JOURNAL": str(self.folder / "journal.db")}
        keys = {"OPENAI_BASE_URL": endpoint.url, "OPENAI_API_KEY": "sk-none", "LANGSMITH_TRACING": "false"}
        return subprocess.Popen(
            [self.python, self.path, *words, "--model", f"loopback:{model}" if self.is_ours else model],
            cwd=self.folder,
            env={**os.environ, **keys, **ours, "PYTHONPATH": str(HERE / "count_refunds"), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, endpoint: ScriptedEndpoint, model: str, *words: str, typed: str = "", **env: str) -> str:
        """Run the program and return what it printed, and after an error that."""
        process = self.start(endpoint, model, *words, **env)
        out, err = process.communicate(typed, timeout=120)
        return out if process.returncode == 0 else f"{out}\nexit {process.returncode}\n{err[-400:]}"

    def check(self) -> str:
        """Run the program with its script; "" if it did what it should, otherwise what it printed."""
        endpoint = ScriptedEndpoint(most_chars=4 * CONTEXT)
        try:
            out = getattr(self, f"_{self.name}")(endpoint)
        finally:
            endpoint.close()
        return out

    def _typed_extraction(self, endpoint: ScriptedEndpoint) -> str:
        out = self.run(endpoint, "invoice", "Invoice 17 of Ada Ltd: 2 lamps at 20 euros, shipping 5 euros. Total 45.")
        return "" if '"shipping"' in out and len(endpoint.asked) == 2 else out

    def _support_agent(self, endpoint: ScriptedEndpoint) -> str:
        out = self.run(endpoint, "support", "Refund order 1042.", typed="yes\n", REFUNDS="refunds")
        return "" if "is refunded." in out and self.refunds() == 1 else out

    def _researcher(self, endpoint: ScriptedEndpoint) -> str:
        model = "research-calls" if self.framework == "openai_agents" else "research"
        out = self.run(endpoint, model, "Compare the warranty and the delivery.")
        return "" if "Three years; two" in out and len(endpoint.asked) == 6 else out

    def _coder(self, endpoint: ScriptedEndpoint) -> str:
        code = self.folder / "code"
        code.mkdir()
        (code / "add.py").write_text("def add(a, b):\n    return a - b\n")
        (code / "test_add.py").write_text("from add import add\n\nassert add(1, 2) == 3\n")
        words = ("code", "Make the test pass.")
        model = "code-shell" if self.framework == "langchain" else "code"
        out = self.run(endpoint, model, *words, typed="yes\nyes\n")
        if "confine a shell" in out:  # a kernel without Landlock
            out = self.run(endpoint, "code-files", *words, "--no-commands", typed="yes\n")
        return "" if "It adds now." in out and "a + b" in (code / "add.py").read_text() else out

    def _chat_memory(self, endpoint: ScriptedEndpoint) -> str:
        out = self.run(endpoint, "chat", typed="My name is Mira.\n") + self.run(endpoint, "chat", typed="Who am I?\n")
        return "" if "You are Mira." in out and b"My name is Mira." in endpoint.asked[-1] else out

    def _long_run(self, endpoint: ScriptedEndpoint) -> str:
        pages = self.folder / "pages"
        pages.mkdir()
        for n in range(FILES):
            (pages / f"{n:02}.txt").write_text(f"Day {n}. " + "The pump ran. " * 500)
        context = () if self.is_ours else ("--context", str(CONTEXT))
        out = self.run(endpoint, "long", "Which pump failed?", "--folder", "pages", *context)
        return "" if "No pump failed." in out else f"{len(endpoint.asked)} requests: {out}"

    def refunds(self) -> int:
        """How often an order was refunded."""
        path = self.folder / "refunds"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def kill_and_resume(self, where: str) -> str:
        """Kill the support agent in or after the refund and resume it; how often the tool ran, and the end."""
        endpoint = ScriptedEndpoint(hang_at=2 if where == "after the refund" else -1)
        kill = {"KILL": "1"} if where == "in the refund" else {}
        process = self.start(endpoint, "support", "Refund order 1042.", REFUNDS="refunds", **kill)
        assert process.stdin is not None
        process.stdin.write("yes\n" * 3)
        process.stdin.flush()
        if not kill:
            assert endpoint.hung.wait(60)
            time.sleep(1)  # time to store the result, for those who do so later
            process.kill()
        assert process.wait(60) == -9, process.communicate()
        endpoint.hang_at = -1
        resume = {"plait": ("--resume", "last"), "pydantic_ai": ("--resume",), "langchain": ()}[self.framework]
        out = self.run(endpoint, "support", *resume, typed="yes\n" * 3, REFUNDS="refunds")
        endpoint.close()
        return f"the refund ran {self.refunds()} times, then: {out.strip().splitlines()[-1]}"


def main() -> int:
    options = argparse.ArgumentParser(description="Run the programs and count their lines.")
    options.add_argument("--venvs", type=Path, required=True)
    given = options.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        for name, frameworks in PROGRAMS.items():
            for framework in ("plait", *frameworks):
                program = Program(name, framework, given.venvs, Path(place) / name / framework)
                wrong = program.check()
                failed += bool(wrong)
                print(f"{name:17} {framework:14} {count_lines(program.path):4} lines  {wrong or 'runs'}", flush=True)
        for where in ("in the refund", "after the refund"):
            for framework in ("plait", *PROGRAMS["support_agent"]):
                program = Program("support_agent", framework, given.venvs, Path(place) / where / framework)
                print(f"killed {where:17} {framework:14} {program.kill_and_resume(where)}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
