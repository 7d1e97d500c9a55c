"""The child process of a local model: loads it, serves it on a loopback port, and ends with its parent.

`embedded.py` runs this as a script and never imports it. It reads one line of JSON from stdin, and writes one to stdout
when the model is loaded: {"address": ...}. The end of stdin means that the parent is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time


def main() -> None:
    settings = json.loads(sys.stdin.buffer.readline())
    sys.path += settings["sys_path"]
    # The parent answers Ctrl-C. llama.cpp's output goes to the log, not into our line of JSON.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(1)
    os.dup2(2, 1)

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.verbosity = 1  # errors only
    params.model.path = settings["path"]
    params.model_alias = {settings["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.ui = False
    params.endpoint_slots = False
    params.n_parallel = settings["slots"]
    params.n_predict = settings["n_predict"]
    params.n_ctx = settings["n_ctx"] * settings["slots"]  # the server divides it among the slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.cpuparams.poll = params.cpuparams_batch.poll = 0  # spinning while waiting slows down everything else
    params.cache_prompt = settings["cache_prompt"]
    params.cache_ram_mib = settings["cache_mib"]
    params.sampling.seed = settings["seed"]
    params.sampling.temp = 0.0
    params.warmup = False
    # Fitting the layers to a GPU's memory loads the file once more; without a GPU it is useless.
    params.fit_params = any("CPU" not in str(device["type"]) for device in xllamacpp.get_device_info())
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        time.sleep(1)  # llama.cpp reports the reason in a separate thread: give it time
        raise
    os.write(answers, json.dumps({"address": server.listening_address}).encode() + b"\n")
    os.close(answers)
    while sys.stdin.buffer.read(4096):
        pass
    # Skip every destructor: ending the server while it generates has crashed, and nothing is left to save.
    os._exit(0)


if __name__ == "__main__":
    main()
