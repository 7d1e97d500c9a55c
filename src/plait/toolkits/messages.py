"""Messages and images to a channel of Discord, by its webhook, and to Slack, by its Web API."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from plait.core.errors import ToolError
from plait.core.text import split_text
from plait.toolkits.image import Image
from plait.toolkits.service import SECONDS, Service, Setting, too_many_requests
from plait.tools.tool import Tool, tool

DISCORD_LONGEST, DISCORD_MESSAGES = 2000, 10
"""Maximum number of characters of a message, and of messages in one call: a longer text is sent as several."""
DISCORD_ENDS = (("\n\n",), ("\n",), (". ",), (" ",))
"""Where a message may end: behind a paragraph, else a line, a sentence or a word."""
DISCORD_ENV = "DISCORD_WEBHOOK_URL"

SLACK_LONGEST = 40_000
"""Maximum number of characters of a message; Slack cuts longer ones."""
SLACK_PAGES = 50
"""Maximum number of pages of channels that are searched, 200 channels each."""
_SLACK_HINTS = {
    "channel_not_found": "Check the channel; a private one is found only when the app is a member.",
    "not_in_channel": "Invite the app to the channel: /invite @app.",
    "is_archived": "The channel is archived: choose another.",
    "invalid_auth": "Check SLACK_BOT_TOKEN.",
    "not_authed": "Check SLACK_BOT_TOKEN.",
    "token_revoked": "Set SLACK_BOT_TOKEN to a new token.",
    "token_expired": "Set SLACK_BOT_TOKEN to a new token.",
    "account_inactive": "Set SLACK_BOT_TOKEN to a new token.",
    "msg_too_long": "Shorten the message.",
    "no_text": "Give the message a text.",
    "ratelimited": "Wait a minute, then call again.",
}
SLACK_ID = re.compile(r"[CGD][A-Z0-9]{7,}")


def discord(*, webhook: Setting = None, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """Makes the tool `send_message_discord`.

    `webhook` (environment: DISCORD_WEBHOOK_URL) is the address of the channel's webhook. It is a secret: anyone who has
    it can write to the channel. Mentions in a message notify nobody.
    """
    hint = "the channel's settings give a webhook's address"
    service = Service("Discord", DISCORD_ENV, "", DISCORD_ENV, hint, webhook, webhook, timeout)

    @tool
    async def send_message_discord(msg: str, image: Image | None = None) -> str:
        """Sends a message to Discord, with an image where one is given.

        Args:
            msg: The message's text.
            image: An image to send with it.
        """
        service.address()
        texts = split_message(msg, image)
        for i, text in enumerate(texts):
            try:
                await _send_to_discord(service, text, image if i == len(texts) - 1 else None)
            except ToolError as error:
                if i == 0:
                    raise
                raise ToolError(
                    f"Only {i} of the message's {len(texts)} parts were sent to Discord. {error.message}",
                    hint=error.hint,
                ) from None
        return describe_sending(texts, image)

    return (send_message_discord,)


async def _send_to_discord(service: Service, text: str, image: Image | None) -> None:
    content: dict[str, Any] = {"content": text, "allowed_mentions": {"parse": []}}
    address = service.address()
    if image is None:
        options: dict[str, Any] = {"json": content}
    else:
        from aiohttp import FormData

        form = FormData(quote_fields=False)
        form.add_field("payload_json", json.dumps(content), content_type="application/json")
        form.add_field("files[0]", image.data, filename=f"image{image.suffix}", content_type=image.media_type)
        options = {"data": form}
    options |= {"params": {"wait": "true"}, "secrets": (address, urlsplit(address).path.rpartition("/")[2])}
    answer = await service.ask(method="POST", address=address, refusals=True, **options)
    if answer.status == 404:
        raise ToolError("Discord knows no such webhook.", hint=f"Set {DISCORD_ENV} to the channel's webhook address.")
    if answer.status == 413:
        raise ToolError("The image is too large for Discord.", hint="Shrink it, then send it again.")
    service.check(answer)


def split_message(text: str, image: Image | None) -> list[str]:
    """Split a text into messages; with an image, there is at least one, perhaps empty. Raises `ToolError`."""
    texts = split_text(text, DISCORD_LONGEST, DISCORD_ENDS)
    if not texts and image is None:
        raise ToolError("The message is empty.", hint="Give it a text or an image.")
    if len(texts) > DISCORD_MESSAGES:
        hint = "Shorten it."
        raise ToolError(f"The message is longer than {DISCORD_MESSAGES * DISCORD_LONGEST:,} characters.", hint=hint)
    return texts or [""]


def describe_sending(texts: list[str], image: Image | None) -> str:
    """Describe the sent messages for the model."""
    parts = f" in {len(texts)} parts" if len(texts) > 1 else ""
    return f"Sent to Discord{parts}{' with the image' if image is not None else ''}."


def slack(*, base_url: Setting = None, key: Setting = None, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """Makes the tools `get_slack_channel_id`, `send_slack_message` and `send_slack_image`.

    `key` (environment: SLACK_BOT_TOKEN) is a bot token with the scopes chat:write, files:write, channels:read and
    groups:read; `base_url` (SLACK_URL) the API's address. Messages are plain text: mentions in them notify nobody.
    """
    names = ("SLACK_URL", "https://slack.com/api", "SLACK_BOT_TOKEN", "a bot token (xoxb-...) of your app")
    service = Service("Slack", *names, base_url, key, timeout)

    @tool(read_only=True, open_world=True)
    async def get_slack_channel_id(channel_name: str) -> str:
        """The id of the Slack channel of a name.

        Args:
            channel_name: The channel's name, with or without #.
        """
        return await _find_channel(service, channel_name)

    @tool
    async def send_slack_message(msg: str, channel_id: str) -> str:
        """Sends a message to a Slack channel.

        Args:
            msg: The message's text.
            channel_id: The channel's id, or its name with #.
        """
        text, channel = check_message(msg, channel_id)
        await _call_slack(
            service, "chat.postMessage", json={"channel": channel, "text": html.escape(text, quote=False)}
        )
        return f"Sent to the Slack channel {channel}."

    @tool
    async def send_slack_image(img: Image, msg: str, channel: str) -> str:
        """Sends an image with a message to a Slack channel.

        Args:
            img: The image.
            msg: The message's text.
            channel: The channel's id, or its name.
        """
        to = await _find_channel(service, channel)
        name = f"image{img.suffix}"
        form = {"filename": name, "length": str(len(img.data))}
        place = await _call_slack(service, "files.getUploadURLExternal", form=form)
        address, file = str(place.get("upload_url", "")), str(place.get("file_id", ""))
        if not address.startswith(("https://", "http://")) or not file:
            raise ToolError("Slack gave no place to upload the image to.", hint="Try again later.")
        headers = {"Content-Type": img.media_type}
        # The address is Slack's own and needs no token; others must not see it.
        await service.ask(address=address, method="POST", data=img.data, headers=headers, secrets=(address,))
        done = {
            "files": [{"id": file, "title": name}],
            "channel_id": to,
            "initial_comment": html.escape(msg.strip(), quote=False),
        }
        await _call_slack(service, "files.completeUploadExternal", json=done)
        return f"Sent the image to the Slack channel {channel.strip()}."

    return (get_slack_channel_id, send_slack_message, send_slack_image)


async def _call_slack(
    service: Service, method: str, *, json: Any = None, form: Any = None, params: Any = None
) -> dict[str, Any]:
    """Make one call of the Web API. Raises `ToolError` if Slack answers with `"ok": false`."""
    headers = {"Authorization": f"Bearer {service.key()}"}
    how = "GET" if json is None and form is None else "POST"
    answer = await service.ask(f"/{method}", method=how, headers=headers, params=params, json=json, data=form)
    read = answer.json_object()
    if read.get("ok") is True:
        return read
    error = str(read.get("error", "no reason given"))[:100]
    if error in ("ratelimited", "rate_limited"):
        raise too_many_requests("Slack", answer.headers.get("Retry-After", ""))
    if error == "missing_scope":
        hint = f"Give the app the scope {read.get('needed', '')}, and install it again."
        raise ToolError("Slack: the token lacks a scope.", hint=hint)
    raise refused_call(method, error)


async def _find_channel(service: Service, named: str) -> str:
    name = read_channel(named)
    if SLACK_ID.fullmatch(name):
        return name
    cursor, seen = "", []
    params = {"types": "public_channel,private_channel", "exclude_archived": "true", "limit": "200"}
    for _ in range(SLACK_PAGES):
        page = await _call_slack(service, "conversations.list", params={**params, "cursor": cursor or None})
        for channel in page.get("channels") or ():
            if isinstance(channel, dict):
                seen.append(str(channel.get("name", "")))
                if seen[-1].lower() == name.lower():
                    return str(channel.get("id", ""))
        more = page.get("response_metadata")
        cursor = str(more.get("next_cursor") or "") if isinstance(more, dict) else ""
        if not cursor:
            break
    raise no_such_channel(name, seen)


def check_message(text: str, channel: str) -> tuple[str, str]:
    """Return the text and the channel, as an id or a name with #, of a message. Raises `ToolError`."""
    text, channel = text.strip(), channel.strip()
    if not text:
        raise ToolError("The message is empty.", hint="Give it a text.")
    if len(text) > SLACK_LONGEST:
        raise ToolError(f"The message is longer than {SLACK_LONGEST:,} characters.", hint="Shorten it.")
    if not channel:
        raise ToolError("No channel is given.", hint="Give its id, or its name with #.")
    return text, channel if SLACK_ID.fullmatch(channel) else f"#{channel.lstrip('#')}"


def read_channel(named: str) -> str:
    """Return a channel's id, or its name without #. Raises `ToolError` if it is empty."""
    name = named.strip().lstrip("#").strip()
    if not name:
        raise ToolError("No channel is given.", hint="Give its name or its id.")
    return name


def no_such_channel(name: str, names: Iterable[str]) -> ToolError:
    near = get_close_matches(name.lower(), list(names), 3)
    hint = f"Did you mean {' or '.join('#' + one for one in near)}?" if near else "The app must be able to see it."
    return ToolError(f"There is no Slack channel #{name[:80]}.", hint=hint)


def refused_call(method: str, error: str) -> ToolError:
    """Return the error for a call that Slack refuses."""
    return ToolError(f"Slack refuses {method}: {error}.", hint=_SLACK_HINTS.get(error, ""))
