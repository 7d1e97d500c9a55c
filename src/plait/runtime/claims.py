"""Finds claims in an answer that something was done: a mail sent, an invoice paid, a table booked.

Theory of operation. A claim is a verb of `VERBS` in a form that says that the speaker has done it ("I have sent", "ich
habe ... gesendet") or that it is done ("has been sent", "wurde gesendet"). Quotations, code, conditions, negations and
questions are left out. A claim is only looked for where the agent has a tool with effects, and only such a call can
support it: one whose tool names the verb, or, if no tool names it, any. The words are those of a few languages; in
others nothing is found, so nothing is flagged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from functools import cache
from typing import NamedTuple

from plait.core import ToolSpec

VERBS = {  # what names the verb in tools: its participles in English, German, French and Spanish
    "send mail email post notify forward message share publish reply": (
        "sent emailed e-mailed mailed posted notified forwarded messaged shared published replied",
        "gesendet geschickt verschickt versendet gemailt veröffentlicht",
        "envoyé envoyée publié publiée",
        "enviado enviada publicado publicada",
    ),
    "pay transfer refund charge purchase buy order": (
        "paid transferred refunded charged purchased bought ordered",
        "bezahlt überwiesen erstattet gekauft bestellt",
        "payé payée remboursé acheté achetée commandé",
        "pagado pagada comprado comprada transferido pedido",
    ),
    "book reserve schedule appointment calendar event meeting": (
        "booked reserved scheduled rescheduled",
        "gebucht reserviert",
        "réservé réservée programmé",
        "reservado reservada programado programada",
    ),
    "delete remove cancel drop unsubscribe": (
        "deleted removed cancelled canceled unsubscribed",
        "gelöscht entfernt storniert gekündigt",
        "supprimé supprimée annulé annulée",
        "eliminado eliminada borrado borrada cancelado cancelada",
    ),
    "save write store create add insert update set change edit rename upload submit register record move": (
        "saved stored created inserted updated uploaded submitted registered renamed",
        "gespeichert erstellt aktualisiert hochgeladen",
        "enregistré enregistrée créé créée",
        "guardado guardada creado creada actualizado actualizada",
    ),
}
_ADVERBS = r"(?:\s+(?:just|now|already|successfully|also|then|soeben|jetzt|bereits|erfolgreich|déjà|bien|ya))*"
_BEHIND = r"(?!\s+(?:by|von|par|por|in\s+\d|on\s+\d|to\s+be)\b)"
_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|\"[^\"]*\"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»|'[^'\n]{12,}'(?!\w)|^>[^\n]*$", re.S | re.M
)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]?")
_OPEN = re.compile(
    r"\?|\b(?:if|once|when|whether|unless|until|would|could|should|will|can|cannot|not|never|nobody|no|nothing|yet"
    r"|wenn|falls|sobald|ob|nicht|kein\w*|würde|könnte|werde|nie|si|quand|ne|pas|jamais|aucun\w*|cuando|nunca|says?|said|wrote|"
    r"reads|states?|draft|subject|dear)\b|n[’']t\b|:\s*$",
    re.I,
)


class ClaimedAction(NamedTuple):
    """A claim: its words, and the names of the tools that would do it (none: any tool with effects)."""

    text: str
    tools: tuple[str, ...]


@cache
def _patterns() -> tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]:
    found = []
    for names, forms in VERBS.items():
        en, de, fr, es = (f"(?:{'|'.join(each.split())})" for each in forms)
        said = [
            rf"\b(?:I(?:\s+have|[’']ve)?|we(?:\s+have|[’']ve)){_ADVERBS}\s+{en}\b",
            rf"\b(?:has|have){_ADVERBS}\s+been{_ADVERBS}\s+{en}\b{_BEHIND}",
            rf"\bich\s+habe\b[^.!?\n]{{0,60}}\s{de}\b|\bwurden?\b[^.!?\n]{{0,40}}\s{de}\b{_BEHIND}",
            rf"\bj[’']ai{_ADVERBS}\s+{fr}\b|\ba\s+été{_ADVERBS}\s+{fr}\b{_BEHIND}",
            rf"\bhe{_ADVERBS}\s+{es}\b|\bha\s+sido{_ADVERBS}\s+{es}\b{_BEHIND}",
        ]
        found.append((tuple(names.split()), re.compile("|".join(said), re.I)))
    return tuple(found)


def find_claims(answer: str, tools: Iterable[ToolSpec]) -> list[ClaimedAction]:
    """Return what an answer says was done, with the tools that would do it. `tools` are all tools of the agent."""
    effects = [tool for tool in tools if tool.has_effects]
    if not effects:
        return []
    found = []
    for sentence in _SENTENCE.findall(_QUOTED.sub(" ", answer)):
        if _OPEN.search(sentence):
            continue
        for names, pattern in _patterns():
            if said := pattern.search(sentence):
                word = re.compile("|".join(names), re.I)
                doing = tuple(tool.name for tool in effects if word.search(f"{tool.name} {tool.description}"))
                found.append(ClaimedAction(said[0].strip(), doing))
    return found


def list_unsupported(claims: Iterable[ClaimedAction], made: Set[str]) -> list[str]:
    """Return the words of the claims that no call supports. `made` are the tools with effects that were called, and did
    not fail."""
    return [claim.text for claim in claims if not (made & {*claim.tools} if claim.tools else made)]
