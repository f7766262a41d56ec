"""Transcript -> token ids.

Transcripts hold text of LLMs, which is data: a control token's spelling in it is encoded as the characters it
is made of, never as the control token, and the head's marker stands at the end only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from trinity.coordinator.slm import SLM
from trinity.errors import UserError

HEAD_MARKER = "\n<Head Input>"
_MARKER_WORDS = HEAD_MARKER.strip()
_SPELT_OUT = "< Head Input>"
_SENTINEL = "\ue000transcript\ue000"
_REMEMBERED_SEGMENTS = 4096

Rendering = Literal["raw", "chat_template"]
ReadPosition = Literal["penultimate", "last"]
Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids up to the read position, which is the last one."""

    ids: Ids


class TranscriptEncoder:
    """Encodes transcripts for one model.

    The text read is the segments (the query, then one string a turn), then the marker `\\n<Head Input>`,
    then the end-of-sequence token. The hidden state is read at the position before that token, which under a
    causal mask can't depend on it: it is left out unless it is itself the read position.

    Args:
        slm: whose tokenizer and limits are used.
        rendering: the text as it is, or as the user's message of the chat template, thinking off, with the
            assistant's prompt opened behind it.
        read_position: the position before the end-of-sequence token, or that token's.
        context: longest sequence in tokens; None is the model's own limit.

    Raises:
        UserError: for a context that is too short, or a tokenizer without a chat template.
    """

    def __init__(
        self,
        slm: SLM,
        *,
        rendering: Rendering = "raw",
        read_position: ReadPosition = "penultimate",
        context: int | None = None,
    ) -> None:
        self._tokenizer = slm.tokenizer
        self._controls = _control_pattern(slm.tokenizer)
        self._control_ids = frozenset(slm.tokenizer.added_tokens_encoder.values())
        self._segment = lru_cache(_REMEMBERED_SEGMENTS)(self._encode_segment)
        before, after = _template_parts(slm, rendering)
        marker = self._plain(HEAD_MARKER)
        self._before = self._with_controls(before)
        self._after = marker + self._with_controls(after)
        if read_position == "last":
            self._after += (slm.eos_id,)
        limit = slm.context if context is None else min(context, slm.context)
        self._room = limit - len(self._before) - len(self._after)
        if self._room < 64:
            raise UserError(f"A context of {limit} tokens is too short for transcripts; allow at least 256.")

    def encode(self, segments: Sequence[str]) -> Encoded:
        """The ids of a transcript: query and turns, each segment encoded on its own.

        Too long a transcript keeps the query and the newest turns; the middle gives way to a visible note.
        """
        pieces = [self._segment(segment) for segment in segments]
        if sum(map(len, pieces)) > self._room:
            pieces = self._fitted(segments, pieces)
        body = tuple(i for piece in pieces for i in piece)
        return Encoded(self._before + body + self._after)

    def clip(self, text: str, max_tokens: int) -> str:
        """The text in at most `max_tokens` tokens: head and tail, with a visible note between them."""
        # No token is longer than its text, so short texts need no tokenizer.
        if len(text.encode()) <= max_tokens:
            return text
        ids = self._plain(text)
        if len(ids) <= max_tokens:
            return text
        kept = max_tokens
        while kept > 0:
            cut = self._around(ids, kept, f"\n[... {len(ids) - kept} tokens cut ...]\n")
            # Text cut inside a character, or joined anew, may take more tokens than its parts.
            over = len(self._plain(cut)) - max_tokens
            if over <= 0:
                return cut
            kept -= over
        return ""

    def _around(self, ids: Ids, kept: int, note: str) -> str:
        head = (kept + 1) // 2
        tail = kept - head
        decode = self._tokenizer.decode
        return str(decode(ids[:head])) + note + (str(decode(ids[-tail:])) if tail else "")

    def _fitted(self, segments: Sequence[str], pieces: list[Ids]) -> list[Ids]:
        """Query and newest turns that fit; what alone is too long is cut in its middle."""
        query = pieces[0]
        if len(query) > self._room // 2:
            query = self._segment(self.clip(_without_marker(segments[0]), self._room // 2))
        left = self._room - len(query)
        for first in range(1, len(pieces)):
            note = self._note(first - 1)
            if sum(map(len, pieces[first:])) + len(note) <= left:
                return [query, note, *pieces[first:]]
        if len(pieces) == 1:
            return [query]
        note = self._note(len(pieces) - 2)
        newest = self.clip(_without_marker(segments[-1]), left - len(note))
        return [query, note, self._segment(newest)]

    def _note(self, turns: int) -> Ids:
        return self._plain(f"\n\n[... {turns} turns cut ...]") if turns else ()

    def _encode_segment(self, text: str) -> Ids:
        return self._plain(_without_marker(text))

    def _plain(self, text: str) -> Ids:
        """Text as text: a control token's spelling is broken in two, and its parts are encoded apart."""
        ids: list[int] = []
        for piece in self._broken(text):
            found = self._tokenizer.encode(piece, add_special_tokens=False)
            if not self._control_ids.isdisjoint(found):
                # A tokenizer that normalises text can bring a spelling about; single characters can't.
                found = [i for char in piece for i in self._tokenizer.encode(char, add_special_tokens=False)]
            ids.extend(i for i in found if i not in self._control_ids)
        return tuple(ids)

    def _broken(self, text: str) -> list[str]:
        if self._controls is None:
            return [text] if text else []
        pieces = []
        start = 0
        while found := self._controls.search(text, start):
            cut = found.start() + 1
            pieces.append(text[start:cut])
            start = cut
        return [piece for piece in [*pieces, text[start:]] if piece]

    def _with_controls(self, text: str) -> Ids:
        """Text of the chat template itself, whose control tokens are meant."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False)) if text else ()


def _without_marker(text: str) -> str:
    """The text with the marker's words written apart, so that its ids never hold the marker's."""
    return text.replace(_MARKER_WORDS, _SPELT_OUT)


def _control_pattern(tokenizer: Any) -> re.Pattern[str] | None:
    spellings = [text for text in tokenizer.added_tokens_encoder if len(text) > 1]
    if not spellings:
        return None
    return re.compile("|".join(re.escape(text) for text in sorted(spellings, key=len, reverse=True)))


def _template_parts(slm: SLM, rendering: Rendering) -> tuple[str, str]:
    """What the chat template puts before and behind a user's message."""
    if rendering == "raw":
        return "", ""
    if not getattr(slm.tokenizer, "chat_template", None):
        raise UserError(f"rendering is chat_template, but the tokenizer of {slm.name} has none; use raw.")
    rendered: str = slm.tokenizer.apply_chat_template(
        [{"role": "user", "content": _SENTINEL}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    before, found, after = rendered.partition(_SENTINEL)
    if not found:
        raise UserError(f"The chat template of {slm.name} leaves the user's message out; use rendering: raw.")
    return before, after
