"""Messages to a Discord channel, by its webhook."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from plait.core.errors import ToolError
from plait.core.text import split_text
from plait.toolkits.image import Image
from plait.toolkits.service import SECONDS, Service, Setting
from plait.tools.tool import Tool, tool

LONGEST = 2000
"""Maximum number of characters of a message; a longer text is sent as several."""
MOST = 10
"""Maximum number of messages of one call."""
ENDS = (("\n\n",), ("\n",), (". ",), (" ",))
"""Where a message may end: behind a paragraph, else a line, a sentence or a word."""
ENV = "DISCORD_WEBHOOK_URL"


def discord(*, webhook: Setting = None, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """Makes the tool `send_message_discord`.

    `webhook` (environment: DISCORD_WEBHOOK_URL) is the address of the channel's webhook. It is a secret: anyone who has
    it can write to the channel. Mentions in a message notify nobody.
    """
    hint = "the channel's settings give a webhook's address"
    service = Service("Discord", ENV, "", ENV, hint, webhook, webhook, timeout)

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
                await _send(service, text, image if i == len(texts) - 1 else None)
            except ToolError as error:
                if i == 0:
                    raise
                raise ToolError(
                    f"Only {i} of the message's {len(texts)} parts were sent to Discord. {error.message}",
                    hint=error.hint,
                ) from None
        return describe_sending(texts, image)

    return (send_message_discord,)


async def _send(service: Service, text: str, image: Image | None) -> None:
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
        raise ToolError("Discord knows no such webhook.", hint=f"Set {ENV} to the channel's webhook address.")
    if answer.status == 413:
        raise ToolError("The image is too large for Discord.", hint="Shrink it, then send it again.")
    service.check(answer)


def split_message(text: str, image: Image | None) -> list[str]:
    """Split a text into messages; with an image, there is at least one, perhaps empty. Raises `ToolError`."""
    texts = split_text(text, LONGEST, ENDS)
    if not texts and image is None:
        raise ToolError("The message is empty.", hint="Give it a text or an image.")
    if len(texts) > MOST:
        raise ToolError(f"The message is longer than {MOST * LONGEST:,} characters.", hint="Shorten it.")
    return texts or [""]


def describe_sending(texts: list[str], image: Image | None) -> str:
    """Describe the sent messages for the model."""
    parts = f" in {len(texts)} parts" if len(texts) > 1 else ""
    return f"Sent to Discord{parts}{' with the image' if image is not None else ''}."
