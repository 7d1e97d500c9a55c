"""An endpoint on this machine that answers as five hosted providers do: to try their examples without a key.

    server = Providers()     # listens at server.url
    server.close()

It thinks, asks for the tool `lookup`, and answers when it gets the result. As the providers' thinking models do, it
refuses a result without the thinking that came before it.
"""

import json

from examples.endpoint import JsonHandler, LocalServer

THOUGHT = "I look up Lyon."
SIGNATURE = "c2lnbmVkIGJ5IHRoZSBwcm92aWRlcg=="
CITY = {"key": "Lyon"}
ANSWER = "522,250 people live in Lyon."


def reply_as_openai(has_result: bool) -> dict[str, object]:
    """A reply of the Responses endpoint."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SIGNATURE}
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "lookup", "arguments": json.dumps(CITY)}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}
    usage = {"input_tokens": 120, "output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 12}}
    return {"status": "completed", "output": [said] if has_result else [thought, call], "usage": usage}


def reply_as_anthropic(has_result: bool) -> dict[str, object]:
    """A reply of the Messages API."""
    thought = {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE}
    call = {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": CITY}
    return {
        "type": "message",
        "content": [{"type": "text", "text": ANSWER}] if has_result else [thought, call],
        "stop_reason": "end_turn" if has_result else "tool_use",
        "usage": {"input_tokens": 120, "output_tokens": 30},
    }


def reply_as_gemini(has_result: bool) -> dict[str, object]:
    """A reply of `generateContent`."""
    call = {"functionCall": {"name": "lookup", "args": CITY}, "thoughtSignature": SIGNATURE}
    content = {"role": "model", "parts": [{"text": ANSWER} if has_result else call]}
    usage = {"promptTokenCount": 120, "candidatesTokenCount": 18, "thoughtsTokenCount": 12}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


def reply_in_chat(has_result: bool, message: dict[str, object]) -> dict[str, object]:
    """A reply of chat completions: `message` is the turn with the call."""
    function = {"name": "lookup", "arguments": json.dumps(CITY)}
    called = {
        "role": "assistant",
        **message,
        "tool_calls": [{"id": "a1b2c3d4e", "type": "function", "function": function}],
    }
    usage = {"prompt_tokens": 120, "completion_tokens": 30}
    finish = "stop" if has_result else "tool_calls"
    said = {"role": "assistant", "content": ANSWER} if has_result else called
    return {"choices": [{"index": 0, "message": said, "finish_reason": finish}], "usage": usage}


def reply_as_deepseek(has_result: bool) -> dict[str, object]:
    """A reply of DeepSeek: the thinking is a field of the message."""
    return reply_in_chat(has_result, {"content": "", "reasoning_content": THOUGHT})


def reply_as_mistral(has_result: bool) -> dict[str, object]:
    """A reply of Mistral: the thinking is a part of the content."""
    return reply_in_chat(
        has_result, {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]}
    )


class Providers(LocalServer):
    """One address for all five. The path of a request and its model's name tell which provider is meant."""

    def __init__(self) -> None:
        class Handler(JsonHandler):
            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
                model = json.loads(asked).get("model", "")
                for word, result, thinking, reply in (
                    ("/responses", '"function_call_output"', SIGNATURE, reply_as_openai),
                    ("/messages", '"tool_result"', SIGNATURE, reply_as_anthropic),
                    (":streamGenerateContent", '"functionResponse"', SIGNATURE, reply_as_gemini),
                    ("deepseek", '"role":"tool"', THOUGHT, reply_as_deepseek),
                    ("mistral", '"role":"tool"', THOUGHT, reply_as_mistral),
                ):
                    if word in self.path or word in model:
                        if result in asked and thinking not in asked:
                            return self.answer(400, {"error": {"message": "The thinking before the call is missing."}})
                        return self.answer(200, {"model": model, **reply(result in asked)})
                return self.answer(404, {"error": {"message": f"{self.path} is not an endpoint of these providers."}})

        super().__init__(Handler)
