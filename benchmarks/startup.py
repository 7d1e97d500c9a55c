"""What starting costs: `plait --version` beside bare Python, `import plait` beside click and msgspec.

python benchmarks/startup.py      medians of 31 starts each, in turn, in milliseconds of wall time
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

PLAIT = str(Path(sys.executable).with_name("plait"))
COMMANDS = {
    "python -c ''": [sys.executable, "-c", ""],
    "plait --version": [PLAIT, "--version"],
    "import plait": [sys.executable, "-c", "import plait"],
    "import click": [sys.executable, "-c", "import click"],
    "import msgspec": [sys.executable, "-c", "import msgspec"],
    "import click, msgspec": [sys.executable, "-c", "import click, msgspec"],
    "plait run --help": [PLAIT, "run", "--help"],
}


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(31):
        for name, command in COMMANDS.items():
            began = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            taken[name].append((time.perf_counter() - began) * 1000)
    for name, times in taken.items():
        print(f"{name:24} {statistics.median(times):6.1f} ms  (least {min(times):.1f})")


if __name__ == "__main__":
    main()
