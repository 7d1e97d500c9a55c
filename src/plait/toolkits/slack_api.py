"""Messages and images to Slack, by its Web API."""

from __future__ import annotations

import re
from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.http import SECONDS, limited
from plait.toolkits.image import Image
from plait.toolkits.service import Said, Service
from plait.tools.tool import Tool, tool

LONGEST = 40_000
"""Characters of one message; Slack cuts longer ones."""
PAGES = 50
"""Pages of channels that are looked through, 200 channels each."""

_HINTS = {
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
_ID = re.compile(r"[CGD][A-Z0-9]{7,}")


def slack(*, base_url: Said = None, key: Said = None, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """The tools `get_slack_channel_id`, `send_slack_message` and `send_slack_image`.

    `key` (environment: SLACK_BOT_TOKEN) is a bot token with the scopes chat:write, files:write, channels:read and
    groups:read; `base_url` (SLACK_URL) the API's address. What a message holds is shown as it is: no one is notified by
    a mention in it.
    """
    service = Service(
        "Slack",
        "SLACK_URL",
        "https://slack.com/api",
        "SLACK_BOT_TOKEN",
        "a bot token (xoxb-...) of your app",
        base_url,
        key,
        timeout,
    )

    @tool(read_only=True)
    async def get_slack_channel_id(channel_name: str) -> str:
        """The id of the Slack channel of a name.

        Args:
            channel_name: The channel's name, with or without #.
        """
        return await _channel(service, channel_name)

    @tool
    async def send_slack_message(msg: str, channel_id: str) -> str:
        """Sends a message to a Slack channel.

        Args:
            msg: The message's text.
            channel_id: The channel's id, or its name with #.
        """
        text = msg.strip()
        if not text:
            raise ToolError("The message is empty.", hint="Give it a text.")
        if len(text) > LONGEST:
            raise ToolError(f"The message is longer than {LONGEST:,} characters.", hint="Shorten it.")
        channel = channel_id.strip()
        if not channel:
            raise ToolError("No channel is given.", hint="Give its id, or its name with #.")
        if not _ID.fullmatch(channel):
            channel = f"#{channel.lstrip('#')}"
        await _call(service, "chat.postMessage", json={"channel": channel, "text": _escaped(text)})
        return f"Sent to the Slack channel {channel}."

    @tool
    async def send_slack_image(img: Image, msg: str, channel: str) -> str:
        """Sends an image with a message to a Slack channel.

        Args:
            img: The image.
            msg: The message's text.
            channel: The channel's id, or its name.
        """
        to = await _channel(service, channel)
        name = f"image{img.suffix}"
        place = await _call(
            service, "files.getUploadURLExternal", form={"filename": name, "length": str(len(img.data))}
        )
        address, file = str(place.get("upload_url", "")), str(place.get("file_id", ""))
        if not address.startswith(("https://", "http://")) or not file:
            raise ToolError("Slack gave no place to upload the image to.", hint="Try again later.")
        headers = {"Content-Type": img.media_type}
        # The address is Slack's own and needs no token; it must not be read by others.
        await service.ask(address=address, method="POST", data=img.data, headers=headers, secrets=(address,))
        done = {"files": [{"id": file, "title": name}], "channel_id": to, "initial_comment": _escaped(msg.strip())}
        await _call(service, "files.completeUploadExternal", json=done)
        return f"Sent the image to the Slack channel {channel.strip()}."

    return (get_slack_channel_id, send_slack_message, send_slack_image)


async def _call(
    service: Service, method: str, *, json: Any = None, form: Any = None, params: Any = None
) -> dict[str, Any]:
    """One call of the Web API. Raises `ToolError` for what Slack answers with `"ok": false`."""
    headers = {"Authorization": f"Bearer {service.key()}"}
    how = "GET" if json is None and form is None else "POST"
    answer = await service.ask(f"/{method}", method=how, headers=headers, params=params, json=json, data=form)
    read = answer.object()
    if read.get("ok") is True:
        return read
    error = str(read.get("error", "no reason given"))[:100]
    if error in ("ratelimited", "rate_limited"):
        raise limited("Slack", answer.headers.get("Retry-After", ""))
    if error == "missing_scope":
        raise ToolError(
            "Slack: the token lacks a scope.",
            hint=f"Give the app the scope {read.get('needed', '')}, and install it again.",
        )
    raise ToolError(f"Slack refuses {method}: {error}.", hint=_HINTS.get(error, ""))


async def _channel(service: Service, named: str) -> str:
    """The id of a channel by its id or name."""
    name = named.strip().lstrip("#").strip()
    if _ID.fullmatch(name):
        return name
    if not name:
        raise ToolError("No channel is given.", hint="Give its name or its id.")
    cursor, seen = "", []
    for _ in range(PAGES):
        params = {
            "types": "public_channel,private_channel",
            "exclude_archived": "true",
            "limit": "200",
            "cursor": cursor or None,
        }
        page = await _call(service, "conversations.list", params=params)
        for channel in page.get("channels") or ():
            if isinstance(channel, dict) and str(channel.get("name", "")).lower() == name.lower():
                return str(channel.get("id", ""))
            seen.append(str(channel.get("name", "")) if isinstance(channel, dict) else "")
        told = page.get("response_metadata")
        cursor = str(told.get("next_cursor") or "") if isinstance(told, dict) else ""
        if not cursor:
            break
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), seen, 3)
    hint = f"Did you mean {' or '.join('#' + one for one in near)}?" if near else "The app must be able to see it."
    raise ToolError(f"There is no Slack channel #{name[:80]}.", hint=hint)


def _escaped(text: str) -> str:
    """The text with what Slack would read as commands (mentions, links) as plain characters."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
