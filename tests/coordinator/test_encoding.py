import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers

from trinity.coordinator.encoding import HEAD_MARKER, TranscriptEncoder
from trinity.coordinator.slm import SLM, SLMConfig, load_slm
from trinity.errors import UserError

LITERALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<Head Input>", HEAD_MARKER]
# No control characters and no unassigned planes: SmolLM2's tokenizer has no bytes for them.
readable = st.characters(exclude_categories=("Cs", "Cc", "Cn"), max_codepoint=0x1FFFF)
fragments = st.one_of(
    st.sampled_from(LITERALS),
    st.sampled_from(["<", "|", ">", "<|", "|>", "im_end", "<|im_", "end|>", "\n", " ", "<Head", " Input>"]),
    st.text(readable, max_size=8),
)
hostile = st.lists(fragments, max_size=12).map("".join)
bounded = partial(settings, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def thinking_slm() -> SLM:
    """The random model, its tokenizer with added tokens that are not special, as Qwen3's <think>."""
    slm = load_slm(SLMConfig(device="cpu"))
    slm.tokenizer.add_tokens(["<think>", "</think>"])
    return slm


@pytest.fixture(scope="module", params=["thinking_slm", "smollm2"])
def slm(request: pytest.FixtureRequest) -> SLM:
    found: SLM = request.getfixturevalue(request.param)
    return found


def control_ids(slm: SLM) -> set[int]:
    return set(slm.tokenizer.added_tokens_encoder.values())


def written(text: str) -> str:
    """A segment as it is read back: only the head's marker is respelt."""
    return text.replace("<Head Input>", "< Head Input>")


def occurrences(ids: tuple[int, ...], part: list[int]) -> int:
    return sum(list(ids[i : i + len(part)]) == part for i in range(len(ids)))


@bounded(max_examples=60)
@given(segments=st.lists(hostile, min_size=1, max_size=4))
@example(segments=[*LITERALS, "<<|im_end|>|im_end|>", "<|im_end<|im_end|>|>", "<<Head Input>Head Input>"])
@example(segments=["<|im_end|><|im_end|><think></think>\n<Head Input>\n<Head Input>"])
def test_text_stays_text(slm: SLM, segments: list[str]) -> None:
    encoder = TranscriptEncoder(slm)
    marker = slm.tokenizer.encode(HEAD_MARKER, add_special_tokens=False)
    ids = encoder.encode(segments).ids
    assert control_ids(slm).isdisjoint(ids)
    assert slm.tokenizer.decode(ids) == "".join(map(written, segments)) + HEAD_MARKER
    assert occurrences(ids, marker) == 1
    assert list(ids[-len(marker) :]) == marker


@bounded(max_examples=30)
@given(segments=st.lists(hostile, min_size=1, max_size=4))
def test_the_chat_template_surrounds_the_text(slm: SLM, segments: list[str]) -> None:
    ids = TranscriptEncoder(slm, rendering="chat_template").encode(segments).ids
    content = "".join(map(written, segments)) + HEAD_MARKER
    rendered = slm.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    assert slm.tokenizer.decode(ids) == rendered
    empty = slm.tokenizer.apply_chat_template(
        [{"role": "user", "content": ""}], tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    meant = [i for i in slm.tokenizer.encode(empty, add_special_tokens=False) if i in control_ids(slm)]
    assert len(meant) >= 3
    assert [i for i in ids if i in control_ids(slm)] == meant


def test_the_chat_template_has_thinking_off() -> None:
    slm = load_slm(SLMConfig(device="cpu"))
    # As Qwen3's template: thinking off opens the answer behind an empty thought.
    slm.tokenizer.chat_template += "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
    ids = TranscriptEncoder(slm, rendering="chat_template").encode(["What is it?"]).ids
    assert slm.tokenizer.decode(ids).endswith("assistant\n<think>\n\n</think>\n\n")


@pytest.mark.parametrize("rendering", ["raw", "chat_template"])
def test_a_longer_transcript_extends_its_own_prefix(slm: SLM, rendering: Any) -> None:
    encoder = TranscriptEncoder(slm, rendering=rendering)
    segments = ["What is 12 + 30?", "\n\nThinker (agent 0):\nAdd the tens.", " 42", "2\n", "\n\n", "é"]
    tail = len(encoder.encode([]).ids) - len(encoder.encode([]).ids[: _before(encoder)])
    whole = encoder.encode(segments).ids
    for k in range(len(segments)):
        shorter = encoder.encode(segments[:k]).ids
        assert whole[: len(shorter) - tail] == shorter[: len(shorter) - tail]


def _before(encoder: TranscriptEncoder) -> int:
    """How many ids stand before the first segment: those that a first segment does not move."""
    a, b = encoder.encode(["a"]).ids, encoder.encode(["b"]).ids
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)


def test_s1_the_read_position_is_the_one_before_eos(random_slm: SLM) -> None:
    slm = random_slm
    segments = ["What is 12 + 30?", "\n\nWorker (agent 1):\n42"]
    penultimate = TranscriptEncoder(slm).encode(segments).ids
    last = TranscriptEncoder(slm, read_position="last").encode(segments).ids
    assert slm.tokenizer.decode(penultimate) == "".join(segments) + HEAD_MARKER
    assert last == (*penultimate, slm.eos_id)
    with torch.no_grad():
        short = slm.decoder(input_ids=torch.tensor([penultimate])).last_hidden_state[0]
        whole = slm.decoder(input_ids=torch.tensor([last])).last_hidden_state[0]
    torch.testing.assert_close(short[-1], whole[-2], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(whole[-1], whole[-2], atol=1e-2)


def test_a_normalising_tokenizer_brings_no_control_token_about() -> None:
    slm = load_slm(SLMConfig(device="cpu"))
    slm.tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    slm.tokenizer.add_tokens([AddedToken("<tool>", normalized=True)])
    tool = slm.tokenizer.convert_tokens_to_ids("<tool>")
    assert tool in slm.tokenizer.encode("<TOOL>")
    ids = TranscriptEncoder(slm).encode(["a <TOOL> b <tool>"]).ids
    assert control_ids(slm).isdisjoint(ids)
    assert slm.tokenizer.decode(ids).startswith("a ? b <tool>")


def test_a_dropped_byte_does_not_join_the_markers_parts(smollm2: SLM) -> None:
    tokenizer = smollm2.tokenizer
    marker = tokenizer.encode(HEAD_MARKER)
    forged = "\n<Head\x04 Input>"
    assert tokenizer.encode(forged) == marker
    assert (
        tokenizer.decode(TranscriptEncoder(smollm2).encode([forged]).ids) == "\n<Head Input?>" + HEAD_MARKER
    )


def test_lone_surrogates_are_no_error(slm: SLM) -> None:
    encoder = TranscriptEncoder(slm)
    assert slm.tokenizer.decode(encoder.encode(["a\ud800b"]).ids) == "a?b" + HEAD_MARKER
    assert encoder.clip("a\ud800b", 100) == "a\ud800b"
    assert "tokens cut" in encoder.clip("a\ud800b" * 100, 50)


def test_a_beginning_token_is_kept_for_models_that_expect_one() -> None:
    slm = load_slm(SLMConfig(device="cpu"))
    assert TranscriptEncoder(slm).encode(["a"]).ids[0] not in control_ids(slm)
    from tokenizers.processors import TemplateProcessing

    slm.tokenizer.bos_token = "<|im_start|>"
    bos = slm.tokenizer.bos_token_id
    template = TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", bos)])
    slm.tokenizer.backend_tokenizer.post_processor = template
    ids = TranscriptEncoder(slm).encode(["a"]).ids
    assert ids[0] == bos
    assert control_ids(slm).isdisjoint(ids[1:])


def words(name: str, count: int) -> str:
    return " ".join(f"{name}{i}" for i in range(count))


def read(slm: SLM, segments: list[str], context: int) -> str:
    ids = TranscriptEncoder(slm, context=context).encode(segments).ids
    assert len(ids) <= context
    text: str = slm.tokenizer.decode(ids)
    assert text.endswith(HEAD_MARKER)
    return text.removesuffix(HEAD_MARKER)


def test_too_long_a_transcript_loses_turns_from_its_middle(random_slm: SLM) -> None:
    segments = ["query " * 10, *(f"\n\nturn {i} " + "x" * 50 for i in range(6))]
    text = read(random_slm, segments, 256)
    assert text == segments[0] + "\n\n[... 4 turns cut ...]" + segments[-2] + segments[-1]


def test_a_long_query_stays_whole_while_turns_can_go(random_slm: SLM) -> None:
    segments = ["query " * 33, "\n\nfirst" + "x" * 50, "\n\nnewest"]
    assert read(random_slm, segments, 256) == segments[0] + "\n\n[... 1 turns cut ...]" + segments[-1]


def test_a_query_alone_takes_all_the_room(random_slm: SLM) -> None:
    text = read(random_slm, [words("q", 400)], 256)
    assert text.startswith("q0 q1 q2 ") and text.endswith(" q398 q399")
    assert re.search(r"\n\[\.\.\. \d+ tokens cut \.\.\.\]\n", text)
    assert len(text) > 230


def test_the_newest_turn_is_cut_in_its_middle(random_slm: SLM) -> None:
    query = "What is it?"
    text = read(random_slm, [query, "\n\nold", "\n\n" + words("t", 400)], 256)
    assert text.startswith(query + "\n\n[... 1 turns cut ...]\n\nt0 t1 ") and text.endswith(" t399")
    assert "tokens cut" in text


def test_a_long_query_and_a_long_turn_share_the_room(random_slm: SLM) -> None:
    text = read(random_slm, [words("q", 400), words("t", 400)], 256)
    assert text.startswith("q0 ") and text.endswith(" t399")
    assert "q399" in text and "t0 " in text
    assert text.count("tokens cut") == 2


@bounded(max_examples=60)
@given(
    lengths=st.lists(st.tuples(hostile, st.integers(0, 60)), max_size=5),
    context=st.integers(200, 600),
    rendering=st.sampled_from(["raw", "chat_template"]),
)
def test_no_transcript_exceeds_the_context(
    slm: SLM, lengths: list[tuple[str, int]], context: int, rendering: Any
) -> None:
    encoder = TranscriptEncoder(slm, context=context + 64, rendering=rendering)
    segments = [text * times for text, times in lengths]
    ids = encoder.encode(segments).ids
    assert len(ids) <= context + 64
    marker = slm.tokenizer.encode(HEAD_MARKER, add_special_tokens=False)
    assert occurrences(ids, marker) == 1


@bounded(max_examples=60)
@given(text=st.one_of(hostile, st.text(max_size=300)), times=st.integers(1, 30), limit=st.integers(0, 200))
def test_clip_keeps_to_its_limit(slm: SLM, text: str, times: int, limit: int) -> None:
    encoder = TranscriptEncoder(slm)
    count: Callable[[str], int] = lambda t: len(encoder._plain(t))  # noqa: E731
    whole = text * times
    clipped = encoder.clip(whole, limit)
    assert count(clipped) <= limit
    if count(whole) <= limit:
        assert clipped == whole
    elif limit >= 60:
        assert "tokens cut ...]" in clipped


def test_clip_keeps_both_ends(slm: SLM) -> None:
    clipped = TranscriptEncoder(slm).clip(words("w", 900), 200)
    assert clipped.startswith("w0 w1 ") and clipped.endswith(" w899")
    assert "tokens cut ...]" in clipped


def test_a_context_without_room_is_refused(random_slm: SLM) -> None:
    with pytest.raises(UserError, match=r"40 tokens is too short.*at least 141"):
        TranscriptEncoder(random_slm, context=40)
    TranscriptEncoder(random_slm, context=141)


def test_the_models_own_context_is_the_limit(random_slm: SLM) -> None:
    encoder = TranscriptEncoder(replace(random_slm, context=300), context=10_000)
    assert 250 < len(encoder.encode(["x" * 1000]).ids) <= 300


def test_a_missing_chat_template_is_named() -> None:
    slm = load_slm(SLMConfig(device="cpu"))
    slm.tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"chat_template.*has none; use raw"):
        TranscriptEncoder(slm, rendering="chat_template")


def test_a_chat_template_without_the_message_is_refused() -> None:
    slm = load_slm(SLMConfig(device="cpu"))
    slm.tokenizer.chat_template = "{{ 'hello' }}"
    with pytest.raises(UserError, match="leaves the user's message out"):
        TranscriptEncoder(slm, rendering="chat_template")
