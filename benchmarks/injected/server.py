"""An MCP server of strangers, over stdio. `python server.py '[NAME, TEXT, DESCRIPTION]'`."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from injected.surfaces import make_server

make_server(*json.loads(sys.argv[1])).run("stdio")
