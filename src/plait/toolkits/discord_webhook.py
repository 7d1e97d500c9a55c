"""Messages to a Discord channel, by its webhook."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import urlsplit

from plait.core.errors import ToolError
from plait.toolkits.http import SECONDS
from plait.toolkits.image import Image
from plait.toolkits.pieces import pieces
from plait.toolkits.service import Said, Service
from plait.tools.tool import Tool, tool

LONGEST = 2000
"""Characters of one message; a longer text is sent as several."""
MOST = 10
"""Messages that one call sends at most."""
ENV = "DISCORD_WEBHOOK_URL"


def discord(*, webhook: Said = None, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """The tool `send_message_discord`.

    `webhook` (environment: DISCORD_WEBHOOK_URL) is the address of the channel's webhook; it is a secret, as whoever
    has it may write there. Nobody is notified by a mention that stands in a message.
    """
    service = Service("Discord", ENV, "", ENV, "", webhook, webhook, timeout)

    @tool
    async def send_message_discord(msg: str, image: Image | None = None) -> str:
        """Sends a message to Discord, with an image where one is given.

        Args:
            msg: The message's text.
            image: An image to send with it.
        """
        address = webhook or os.environ.get(ENV, "").strip()
        if not address:
            raise ToolError(
                f"Discord is not set up: {ENV} is not set.",
                hint="Set it in the environment of this program: the channel's settings give a webhook's address.",
            )
        texts = pieces(msg.strip(), LONGEST)
        if not texts and image is None:
            raise ToolError("The message is empty.", hint="Give it a text or an image.")
        if len(texts) > MOST:
            raise ToolError(f"The message is longer than {MOST * LONGEST:,} characters.", hint="Shorten it.")
        texts = texts or [""]
        for i, text in enumerate(texts):
            try:
                await _send(service, address, text, image if i == len(texts) - 1 else None)
            except ToolError as error:
                if i == 0:
                    raise
                raise ToolError(
                    f"Only {i} of the message's {len(texts)} parts were sent to Discord. {error.message}",
                    hint=error.hint,
                ) from None
        parts = f" in {len(texts)} parts" if len(texts) > 1 else ""
        return f"Sent to Discord{parts}{' with the image' if image is not None else ''}."

    return (send_message_discord,)


async def _send(service: Service, address: str, text: str, image: Image | None) -> None:
    content: dict[str, Any] = {"content": text, "allowed_mentions": {"parse": []}}
    token = urlsplit(address).path.rpartition("/")[2]
    options: dict[str, Any] = {"method": "POST", "params": {"wait": "true"}, "secrets": (address, token)}
    if image is None:
        options["json"] = content
    else:
        from aiohttp import FormData

        form = FormData(quote_fields=False)
        form.add_field("payload_json", json.dumps(content), content_type="application/json")
        name = f"image{image.suffix}"
        form.add_field("files[0]", image.data, filename=name, content_type=image.media_type)
        options["data"] = form
    service.address()  # says it when the webhook is no address
    answer = await service.ask(address=address, refusals=True, **options)
    if answer.status == 404:
        raise ToolError("Discord knows no such webhook.", hint=f"Set {ENV} to the channel's webhook address.")
    if answer.status == 413:
        raise ToolError("The image is too large for Discord.", hint="Shrink it, then send it again.")
    service.check(answer)
