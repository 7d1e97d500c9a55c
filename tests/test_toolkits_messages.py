"""Claims about messages to Discord and Slack: what goes out, what is said when it does not, what stays secret."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from plait.core.text import split_text
from plait.toolkits import Image, discord, slack
from plait.toolkits.messages import DISCORD_ENDS
from toolkits_server import Seen, Site, call, named, picture, refusal, site, told

TOKEN = "xoxb-1234567890-abcdefghij"
HOOK = "/api/webhooks/42/tHe-SecretTokenOfTheWebhook"
SENT = {"id": "1", "type": 0, "content": "...", "channel_id": "2"}
IMAGE = Image.from_bytes(picture())


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISCORD_WEBHOOK_URL", "SLACK_BOT_TOKEN", "SLACK_URL"):
        monkeypatch.delenv(name, raising=False)


# --- Discord


async def test_a_message_goes_to_the_webhook_and_notifies_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    toolkit = discord()
    async with site({HOOK: SENT}) as there:
        monkeypatch.setenv("DISCORD_WEBHOOK_URL", there.address + HOOK)
        assert await call(toolkit, "send_message_discord", msg="Hello @everyone & <you>") == "Sent to Discord."
        (seen,) = there.seen
    assert (seen.method, seen.query) == ("POST", {"wait": "true"})
    assert seen.json == {"content": "Hello @everyone & <you>", "allowed_mentions": {"parse": []}}


async def test_an_image_goes_with_the_message() -> None:
    async with site({HOOK: SENT}) as there:
        toolkit = discord(webhook=there.address + HOOK)
        assert (
            await call(toolkit, "send_message_discord", msg="Hello from Space!", image=IMAGE)
            == "Sent to Discord with the image."
        )
        assert await call(toolkit, "send_message_discord", msg="", image=IMAGE) == "Sent to Discord with the image."
        first, second = there.seen
    assert first.parts["files[0]"] == ("image.png", "image/png", IMAGE.data)
    assert json.loads(first.parts["payload_json"][2])["content"] == "Hello from Space!"
    assert json.loads(second.parts["payload_json"][2])["content"] == ""


async def test_a_long_message_goes_in_parts_with_the_image_at_the_last() -> None:
    text = "\n\n".join(f"Paragraph {i}. " + "word " * 150 for i in range(6))
    async with site({HOOK: SENT}) as there:
        toolkit = discord(webhook=there.address + HOOK)
        said = await call(toolkit, "send_message_discord", msg=text, image=IMAGE)
        assert said == f"Sent to Discord in {len(there.seen)} parts with the image."
        *before, last = there.seen
    assert "files[0]" in last.parts
    sent = [one.json["content"] for one in before] + [json.loads(last.parts["payload_json"][2])["content"]]
    assert all(len(one) <= 2000 for one in sent)
    assert "".join("".join(sent).split()) == "".join(text.split())


@given(st.text("ab. \n", max_size=300), st.integers(4, 40))
def test_pieces_hold_the_whole_text(text: str, most: int) -> None:
    found = split_text(text, most, DISCORD_ENDS)
    assert all(0 < len(piece) <= most for piece in found)
    assert "".join("".join(found).split()) == "".join(text.split())


async def test_a_message_of_which_only_a_part_was_sent_says_so() -> None:
    busy = told({"message": "You are being rate limited.", "retry_after": 0.65, "global": False}, 429, Retry_After="1")
    async with site({HOOK: [told(SENT), busy]}) as there:
        said = await refusal(discord(webhook=there.address + HOOK), "send_message_discord", msg="word " * 900)
    assert said == (
        "Only 1 of the message's 3 parts were sent to Discord. Discord asks to slow down (429): You are being rate "
        "limited. Wait 1 s, then call again."
    )


async def test_discords_refusals_are_told_without_the_webhook() -> None:
    answers: list[Any] = [
        told({"message": "Unknown Webhook", "code": 10015}, 404),
        told({"message": "Invalid Webhook Token", "code": 50027}, 401),
        told({"message": "Request entity too large", "code": 40005}, 413),
        told({"message": f"Invalid Form Body {HOOK}", "code": 50035}, 400),
        web.Response(status=500),
    ]
    async with site({HOOK: answers}) as there:
        toolkit = discord(webhook=there.address + HOOK)
        said = [await refusal(toolkit, "send_message_discord", msg="Hello", image=IMAGE) for _ in range(5)]
        assert len(there.seen) == 5
    assert said[0] == "Discord knows no such webhook. Set DISCORD_WEBHOOK_URL to the channel's webhook address."
    assert "refuses access (401): Invalid Webhook Token. Check DISCORD_WEBHOOK_URL." in said[1]
    assert "Shrink it" in said[2]
    assert "[secret]" in said[3]
    assert "has failed (500)" in said[4]
    gone = await refusal(discord(webhook=there.address + HOOK), "send_message_discord", msg="Hello")
    assert "Discord can't be reached: connection refused" in gone
    assert all("SecretToken" not in one for one in (*said, gone))


async def test_what_discord_would_not_take_is_told_before_anything_goes_out() -> None:
    assert await refusal(discord(), "send_message_discord", msg="Hello") == (
        "Discord is not set up: DISCORD_WEBHOOK_URL is not set. Set DISCORD_WEBHOOK_URL in the environment of this "
        "program: the channel's settings give a webhook's address."
    )
    async with site({HOOK: SENT}) as there:
        toolkit = discord(webhook=there.address + HOOK)
        assert "is empty" in await refusal(toolkit, "send_message_discord", msg=" \n")
        assert "longer than 20,000 characters" in await refusal(toolkit, "send_message_discord", msg="x" * 30_000)
        assert there.seen == []
    assert "is none" in await refusal(discord(webhook="my channel"), "send_message_discord", msg="Hello")


# --- Slack


def workspace(count: int = 450, wanted: str = "experimenting-with-simple-ai-agents") -> dict[str, Any]:
    """Slack's Web API over a workspace with many channels, the wanted one last; checks what it is sent."""
    names = [f"channel-{i}" for i in range(count - 1)] + [wanted]
    channels = [{"id": f"C{i:09}", "name": name, "is_archived": False} for i, name in enumerate(names)]
    slots: dict[str, int] = {}

    def refused(seen: Seen) -> dict[str, Any] | None:
        if seen.headers.get("authorization") != f"Bearer {TOKEN}":
            return {"ok": False, "error": "invalid_auth" if "authorization" in seen.headers else "not_authed"}
        return None

    def listed(seen: Seen) -> dict[str, Any]:
        if (said := refused(seen)) is not None:
            return said
        assert seen.query["types"] == "public_channel,private_channel"
        start, most = int(seen.query.get("cursor") or 0), int(seen.query["limit"])
        end = start + most
        return {
            "ok": True,
            "channels": channels[start:end],
            "response_metadata": {"next_cursor": str(end) if end < len(channels) else ""},
        }

    def posted(seen: Seen) -> dict[str, Any]:
        if (said := refused(seen)) is not None:
            return said
        assert seen.headers["content-type"].startswith("application/json")
        to = seen.json["channel"]
        known = {each["id"] for each in channels} | {f"#{each['name']}" for each in channels}
        if to not in known:
            return {"ok": False, "error": "channel_not_found"}
        return {"ok": True, "channel": to, "ts": "1503435956.000247", "message": {"text": seen.json["text"]}}

    def upload_url(seen: Seen) -> dict[str, Any]:
        if (said := refused(seen)) is not None:
            return said
        form = parse_qs(seen.body.decode())
        slots["F123ABC456"] = int(form["length"][0])
        return {"ok": True, "upload_url": f"http://{seen.headers['host']}/upload/v1/ABC123", "file_id": "F123ABC456"}

    def uploaded(seen: Seen) -> web.Response:
        assert "authorization" not in seen.headers
        assert len(seen.body) == slots["F123ABC456"]
        return web.Response(text=f"OK - {len(seen.body)}")

    def completed(seen: Seen) -> dict[str, Any]:
        if (said := refused(seen)) is not None:
            return said
        if seen.json["channel_id"] not in {each["id"] for each in channels}:
            return {"ok": False, "error": "channel_not_found"}
        return {"ok": True, "files": seen.json["files"]}

    return {
        "/api/conversations.list": listed,
        "/api/chat.postMessage": posted,
        "/api/files.getUploadURLExternal": upload_url,
        "/upload/v1/ABC123": uploaded,
        "/api/files.completeUploadExternal": completed,
    }


def kit_of(there: Site) -> Any:
    return slack(base_url=f"{there.address}/api", key=TOKEN)


@pytest.mark.parametrize("name", ["#experimenting-with-simple-ai-agents", " Experimenting-With-Simple-AI-Agents"])
async def test_a_channel_is_found_by_its_name_on_whichever_page(name: str) -> None:
    async with site(workspace()) as there:
        assert await call(kit_of(there), "get_slack_channel_id", channel_name=name) == "C000000449"
        assert [seen.query.get("cursor") for seen in there.seen] == [None, "200", "400"]
        assert await call(kit_of(there), "get_slack_channel_id", channel_name="C012AB3CD9") == "C012AB3CD9"


async def test_a_channel_that_is_not_there_is_told_with_those_alike() -> None:
    async with site(workspace(5)) as there:
        said = await refusal(kit_of(there), "get_slack_channel_id", channel_name="#experimenting-with-simple-agents")
        assert said.endswith("Did you mean #experimenting-with-simple-ai-agents?")
        assert "must be able to see it" in await refusal(kit_of(there), "get_slack_channel_id", channel_name="zzz")
        assert "No channel" in await refusal(kit_of(there), "get_slack_channel_id", channel_name="#")


@pytest.mark.parametrize(
    ("to", "sent"),
    [
        ("C000000004", "C000000004"),
        ("#experimenting-with-simple-ai-agents", "#experimenting-with-simple-ai-agents"),
        ("experimenting-with-simple-ai-agents", "#experimenting-with-simple-ai-agents"),
    ],
)
async def test_a_message_goes_to_a_channel_by_id_or_name(to: str, sent: str) -> None:
    async with site(workspace(5)) as there:
        said = await call(kit_of(there), "send_slack_message", msg="Low: 239.23 <!channel> & more", channel_id=to)
        assert said == f"Sent to the Slack channel {sent}."
        assert there.seen[0].json == {"channel": sent, "text": "Low: 239.23 &lt;!channel&gt; &amp; more"}


async def test_an_image_goes_up_and_into_the_channel_with_its_message() -> None:
    async with site(workspace(5)) as there:
        await call(kit_of(there), "send_slack_image", img=IMAGE, msg="Look: <this>", channel="#channel-2")
        assert [seen.path for seen in there.seen] == [
            "/api/conversations.list",
            "/api/files.getUploadURLExternal",
            "/upload/v1/ABC123",
            "/api/files.completeUploadExternal",
        ]
        assert there.seen[2].body == IMAGE.data
        assert there.seen[3].json == {
            "files": [{"id": "F123ABC456", "title": "image.png"}],
            "channel_id": "C000000002",
            "initial_comment": "Look: &lt;this&gt;",
        }


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"ok": False, "error": "not_in_channel"}, "Slack refuses chat.postMessage: not_in_channel. Invite the app"),
        ({"ok": False, "error": "invalid_auth"}, "invalid_auth. Check SLACK_BOT_TOKEN."),
        ({"ok": False, "error": "missing_scope", "needed": "chat:write"}, "Give the app the scope chat:write"),
        ({"ok": False, "error": "something_new"}, "Slack refuses chat.postMessage: something_new."),
        (told({"ok": False, "error": "ratelimited"}, Retry_After="12"), "slow down (429). Wait 12 s"),
        (told({"ok": False, "error": "ratelimited"}, 429, Retry_After="30"), "slow down (429): ratelimited. Wait 30 s"),
        (web.Response(status=503), "Slack has failed (503)"),
        (web.Response(text="<html>", content_type="text/html"), "something else than JSON"),
        ({"ok": False, "error": f"bad token {TOKEN}"}, "bad token [secret]"),
        ({}, "no reason given"),
    ],
)
async def test_slacks_refusals_are_told(answer: Any, said: str) -> None:
    async with site({"/api/chat.postMessage": answer}) as there:
        told_so = await refusal(kit_of(there), "send_slack_message", msg="Hello", channel_id="#general")
        assert said in told_so
        assert TOKEN not in told_so
        assert len(there.seen) == 1


async def test_an_upload_that_fails_sends_nothing_to_the_channel() -> None:
    answers = workspace(5) | {"/upload/v1/ABC123": web.Response(status=500)}
    async with site(answers) as there:
        assert "has failed (500)" in await refusal(
            kit_of(there), "send_slack_image", img=IMAGE, msg="Look", channel="C000000002"
        )
        assert "/api/files.completeUploadExternal" not in [seen.path for seen in there.seen]
    answers["/api/files.getUploadURLExternal"] = {"ok": True, "upload_url": "file:///tmp/x", "file_id": "F1"}
    async with site(answers) as there:
        assert "no place to upload" in await refusal(
            kit_of(there), "send_slack_image", img=IMAGE, msg="Look", channel="C000000002"
        )


async def test_without_a_token_it_is_said_how_to_set_one_and_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(workspace(5)) as there:
        monkeypatch.setenv("SLACK_URL", f"{there.address}/api")
        toolkit = slack()
        said = await refusal(toolkit, "send_slack_message", msg="Hello", channel_id="#channel-1")
        assert said == (
            "Slack needs a key, and SLACK_BOT_TOKEN is not set. Set SLACK_BOT_TOKEN in the environment of this "
            "program: a bot token (xoxb-...) of your app."
        )
        assert "SLACK_BOT_TOKEN" in await refusal(toolkit, "get_slack_channel_id", channel_name="general")
        assert there.seen == []
        monkeypatch.setenv("SLACK_BOT_TOKEN", TOKEN)
        await call(toolkit, "send_slack_message", msg="Hello", channel_id="#channel-1")
        assert len(there.seen) == 1


async def test_what_slack_would_not_take_is_told_before_anything_goes_out() -> None:
    async with site(workspace(5)) as there:
        for given_, said in (
            ({"msg": " ", "channel_id": "#channel-1"}, "is empty"),
            ({"msg": "x" * 40_001, "channel_id": "#channel-1"}, "longer than 40,000"),
            ({"msg": "x", "channel_id": " "}, "No channel"),
        ):
            assert said in await refusal(kit_of(there), "send_slack_message", **given_)
        assert there.seen == []


def test_messages_have_effects_and_are_named_as_recorded() -> None:
    toolkit = (*discord(), *slack())
    assert {tool.name: (tool.read_only, list(tool.spec.parameters["properties"])) for tool in toolkit} == {
        "send_message_discord": (False, ["msg", "image"]),
        "get_slack_channel_id": (True, ["channel_name"]),
        "send_slack_message": (False, ["msg", "channel_id"]),
        "send_slack_image": (False, ["img", "msg", "channel"]),
    }
    assert not any(tool.idempotent for tool in toolkit)
    assert named(toolkit, "send_message_discord").spec.parameters["required"] == ["msg"]
