"""The model of a command that names none, and the models that a server lists."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from urllib.parse import urlsplit

import msgspec

from plait.models.fallback import SEPARATOR
from plait.models.presets import HOSTS
from plait.proxies import is_this_machine

LOCAL_SECONDS, REMOTE_SECONDS = 0.4, 5.0
"""Seconds that an endpoint may take to answer."""


def choose_model(env: Mapping[str, str]) -> tuple[str, str]:
    """Return the model for a command that names none, and why, as a clause; "" if it is the usual one.

    It is `local` if its package is installed. Otherwise it is a model of the first provider whose key is set, or the
    first model of a server on this machine, such as Ollama. If there is neither, it is `local`: `resolve` refuses that,
    and says what is missing.
    """
    if find_spec("xllamacpp") is not None:
        return "local", ""
    for host in HOSTS.values():
        key = host.keys[0]  # the others, such as HF_TOKEN, are often set for something else
        if not host.local and env.get(key, "").strip():
            return f"{host.name}:{host.example}", f"{key} is set"
    local = [host for host in HOSTS.values() if host.local]
    servers = [(host.name, env.get(host.base_env, "").strip() or host.base_url) for host in local]
    with ThreadPoolExecutor(len(servers)) as threads:
        answers = threads.map(ask_for_models, [address for _, address in servers])
    for (name, address), (models, _) in zip(servers, answers, strict=True):
        for model in models or ():
            if model and "embed" not in model and SEPARATOR not in model:  # what a server says names one model
                return f"{name}:{model}", f"{address} has it"
    return "local", ""


def ask_for_models(address: str) -> tuple[list[str] | None, str]:
    """Return the models that a server at an address lists, and its answer in words; None if no model server answers.

    Sends no key. Local servers list their models. Some hosted ones do not: there, HTTP 404 is an answer, without
    models.
    """
    import urllib.error
    import urllib.request  # 20 ms
    from http.client import HTTPException

    try:
        here = is_this_machine(urlsplit(address).hostname or "")
        opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if here else []))
        request = urllib.request.Request(f"{address.rstrip('/')}/models", headers={"User-Agent": "plait"})
        with opener.open(request, timeout=LOCAL_SECONDS if here else REMOTE_SECONDS) as reply:
            listed = [str(each["id"]) for each in msgspec.json.decode(reply.read(1 << 20))["data"]]
        return listed, f"{len(listed)} models"
    except urllib.error.HTTPError as error:
        error.close()
        is_there = error.code in (401, 403) or (error.code == 404 and not here)
        return [] if is_there else None, f"it answered with HTTP {error.code}"
    except (msgspec.MsgspecError, KeyError, TypeError, RecursionError):
        return None, "something answers that is not a model server"
    except (OSError, ValueError, HTTPException) as error:  # nothing there, another protocol, or not an HTTP address
        reason = getattr(error, "reason", error)
        return None, f"not reachable ({getattr(reason, 'strerror', None) or str(reason)[:200]})"
