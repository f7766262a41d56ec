"""Transcript -> token ids.

Transcripts hold text of LLMs, which is data: a control token's spelling in it is encoded as the characters it
is made of, never as the control token, and the head's marker stands at the end only.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from trinity.coordinator.slm import SLM
from trinity.errors import UserError

HEAD_MARKER = "\n<Head Input>"
_MARKER_WORDS = HEAD_MARKER.strip()
_SPELT_OUT = "< Head Input>"
_SENTINEL = "\ue000transcript\ue000"
_UNREADABLE = "?"
_REMEMBERED_SEGMENTS = 4096
_LEAST_ROOM = 128

Rendering = Literal["raw", "chat_template"]
ReadPosition = Literal["penultimate", "last"]
Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A transcript's token ids up to the read position, which is the last one.

    `pieces` are the query's and then each turn's: a longer transcript has the same ones and more behind them.
    `ending` is what follows the newest piece, the same for all transcripts.
    """

    pieces: tuple[Ids, ...]
    ending: Ids

    @property
    def ids(self) -> Ids:
        """All of them, (T,)."""
        return tuple(i for piece in self.pieces for i in piece) + self.ending


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
        controls = _control_tokens(slm.tokenizer)
        self._controls = _any_of(controls)
        self._control_ids = frozenset(controls.values())
        self._unreadable: Ids = tuple(slm.tokenizer.encode(_UNREADABLE, add_special_tokens=False))
        self._segment = lru_cache(_REMEMBERED_SEGMENTS)(self._encode_segment)
        before, after = _template_parts(slm, rendering)
        self._before = self._with_controls(before) if before else _beginning(slm.tokenizer)
        self._marker = self._as_text(HEAD_MARKER)
        self._after = self._marker + self._with_controls(after)
        if read_position == "last":
            self._after += (slm.eos_id,)
        limit = slm.context if context is None else min(context, slm.context)
        self._room = limit - len(self._before) - len(self._after)
        if self._room < _LEAST_ROOM:
            needed = limit - self._room + _LEAST_ROOM
            raise UserError(
                f"A context of {limit} tokens is too short for transcripts with {slm.name}; "
                f"allow at least {needed}."
            )

    def encode(self, segments: Sequence[str]) -> Encoded:
        """The ids of a transcript: query and turns, each segment encoded on its own.

        Too long a transcript keeps the query and the newest turns; the middle gives way to a visible note.
        """
        pieces = [self._segment(segment) for segment in segments]
        if sum(map(len, pieces)) > self._room:
            pieces = self._fitted(segments, pieces)
        # What begins every transcript belongs to the first piece; an empty one behind it adds nothing.
        first = self._before + (pieces[0] if pieces else ())
        return Encoded((first, *(piece for piece in pieces[1:] if piece)), self._after)

    def clip(self, text: str, max_tokens: int) -> str:
        """The text in at most `max_tokens` tokens: head and tail, with a visible note between them.

        A text that is short enough comes back unchanged, and "" where not even the note would fit.
        """
        # Short plain texts need no tokenizer: none makes more than two tokens of one ASCII character.
        if text.isascii() and 2 * len(text) < max_tokens:
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
        turns = len(pieces) - 1
        if not turns:
            return [self._clipped(segments[0], self._room)]
        # The query may take what the newest turn leaves, and half the room where both are long.
        spare = self._room - len(pieces[-1]) - len(self._note(turns))
        query = self._clipped(segments[0], max(spare, self._room // 2))
        left = self._room - len(query)
        for cut in range(turns):
            note = self._note(cut)
            if sum(map(len, pieces[cut + 1 :])) + len(note) <= left:
                return [query, note, *pieces[cut + 1 :]]
        note = self._note(turns - 1)
        return [query, note, self._clipped(segments[-1], left - len(note))]

    def _clipped(self, segment: str, max_tokens: int) -> Ids:
        return self._segment(self.clip(_without_marker(segment), max_tokens))

    def _note(self, turns: int) -> Ids:
        return self._plain(f"\n\n[... {turns} turns cut ...]") if turns else ()

    def _encode_segment(self, text: str) -> Ids:
        return self._plain(_without_marker(text))

    def _plain(self, text: str) -> Ids:
        """Text as text, and never the marker's ids: a byte that the tokenizer drops may have parted them."""
        ids = self._as_text(text)
        size = len(self._marker)
        apart: list[int] = []
        for i in ids:
            apart.append(i)
            if tuple(apart[-size:]) == self._marker:
                apart[-1:-1] = self._unreadable
        return tuple(apart)

    def _as_text(self, text: str) -> Ids:
        """A control token's spelling is broken in two, and its parts are encoded apart.

        What still gives a control token (characters that the tokenizer has no other token for, or spellings
        that its normalisation brings about) becomes a question mark, and so do lone surrogates, which are no
        text.
        """
        ids: list[int] = []
        for piece in self._broken(text.encode(errors="replace").decode()):
            for i in self._tokenizer.encode(piece, add_special_tokens=False, verbose=False):
                if i in self._control_ids:
                    ids.extend(self._unreadable)
                else:
                    ids.append(i)
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


def _beginning(tokenizer: Any) -> Ids:
    """The beginning-of-sequence token, for models that expect one."""
    first = tuple(tokenizer.encode(""))[:1]
    return first if first == (tokenizer.bos_token_id,) else ()


def _control_tokens(tokenizer: Any) -> dict[str, int]:
    """Spelling -> id of all added tokens, special or not; single characters such as a newline are text."""
    special = set(tokenizer.all_special_ids)
    added: dict[str, int] = tokenizer.added_tokens_encoder
    return {text: i for text, i in added.items() if len(text) > 1 or i in special}


def _any_of(spellings: Iterable[str]) -> re.Pattern[str] | None:
    longer = [re.escape(text) for text in spellings if len(text) > 1]
    return re.compile("|".join(longer)) if longer else None


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
