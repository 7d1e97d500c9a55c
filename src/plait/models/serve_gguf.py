"""The child process that holds a local model: loads it, serves it on a loopback port, dies with its parent.

Run as a script by `embedded.py`, never imported. One line of JSON comes on stdin; one goes to stdout when the
model is loaded: {"address": ...}. After that stdin says only one thing, by ending: the parent is gone.
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
    # Ctrl-C is for the parent to answer; and whatever llama.cpp prints goes to the log, not to our one line.
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
    params.cpuparams.poll = params.cpuparams_batch.poll = 0  # spinning while waiting starves everybody else
    params.cache_prompt = settings["cache_prompt"]
    params.cache_ram_mib = settings["cache_mib"]
    params.sampling.seed = settings["seed"]
    params.sampling.temp = 0.0
    params.warmup = False
    # Fitting the layers to a GPU's memory loads the file once more; without a GPU there is nothing to fit.
    params.fit_params = any("CPU" not in str(device["type"]) for device in xllamacpp.get_device_info())
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        time.sleep(1)  # llama.cpp says why in a thread of its own: let it have said so before we end
        raise
    os.write(answers, json.dumps({"address": server.listening_address}).encode() + b"\n")
    os.close(answers)
    while sys.stdin.buffer.read(4096):
        pass
    # Past every destructor: ending the server while it generates has crashed, and nothing is left to save.
    os._exit(0)


if __name__ == "__main__":
    main()
