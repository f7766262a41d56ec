"""The body of a chat completion -> what was said, what it cost, or why there is no answer.

Read from the JSON that the server sent, in OpenAI's form and the variations of it that servers are known for.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trinity.pool.base import Completion, InfrastructureError, Paid, Price

_THINK = re.compile(r"\s*<think>(.*?)(?:</think>\s*|$)", re.DOTALL)
_USAGE = re.compile(r'"usage"\s*:\s*(?=\{)')
_CHARACTERS_A_TOKEN = 3.0
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server says that a call took; None where it does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int = 0
    usd: float | None = None

    def paid(self, price: Price | None) -> Paid:
        """What was paid for an answer that can't be used: as stated, else tokens at a price."""
        if self == Usage():
            return Paid()
        prompt, completion = self.prompt_tokens or 0, self.completion_tokens or 0
        usd = self.usd if self.usd is not None or price is None else price.of(prompt, completion)
        return Paid(usd or 0.0, 1, prompt, completion)


def body_of(text: str) -> Any:
    """The JSON of a body; None where it is none.

    Comment lines may stand above it, as in event streams: servers send them to keep a connection open.
    """
    text = text.lstrip("\ufeff \t\r\n")
    while text.startswith(":"):
        text = text.partition("\n")[2].lstrip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def usage_of(text: str) -> Usage:
    """The usage that a body states, also one that is cut or broken otherwise; the last one of several."""
    body = body_of(text)
    if isinstance(body, dict):
        return _usage(body.get("usage"))
    found = Usage()
    for place in _USAGE.finditer(text):
        try:
            found = _usage(_DECODER.raw_decode(text, place.end())[0])
        except (ValueError, RecursionError):
            continue
    return found


def error_of(body: Any) -> tuple[int | None, str] | None:
    """(code, message) of an error that takes the place of an answer; None where there is none."""
    if not isinstance(body, dict) or body.get("choices") or not body.get("error"):
        return None
    error = body["error"]
    if not isinstance(error, dict):
        return None, str(error)
    code = str(error.get("code") or error.get("status") or "")
    return (int(code) if re.fullmatch(r"[1-5]\d\d", code) else None), str(error.get("message") or "")


def read(agent: str, text: str, price: Price | None, prompt_characters: int = 0) -> Completion:
    """The completion that a body holds.

    A model that refuses, is filtered, calls a tool that nobody offered or says nothing after thinking has
    answered: the refusal's text is the answer, and `refusal` says why it is no proper one.

    Args:
        agent: the model's name, for errors.
        text: the response's body.
        price: of the model, for servers that state no cost.
        prompt_characters: length of the request, for servers that count no tokens.

    Raises InfrastructureError if it holds no usable answer, with what it cost.
    """
    usage = usage_of(text)
    try:
        finish, message = _choice(body_of(text))
        said, reasoning = _said(message)
        refusal = _refusal(finish, message, said, bool(reasoning.strip() or usage.reasoning_tokens))
    except _Unusable as why:
        raise InfrastructureError(agent, str(why), answered=True, paid=usage.paid(price)) from None
    if refusal and not said.strip():
        said = str(message.get("refusal") or "")
    prompt = _count(usage.prompt_tokens, prompt_characters)
    completion = _count(usage.completion_tokens, len(said) + len(reasoning))
    usd = usage.usd if usage.usd is not None or price is None else price.of(prompt, completion)
    return Completion(
        text=said,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost=usd or 0.0,
        finish_reason="length" if finish == "length" else "stop",
        reasoning=reasoning,
        refusal=refusal,
        is_priced=usd is not None,
    )


class _Unusable(Exception):
    """Why a body holds no answer of the model."""


def _choice(body: Any) -> tuple[Any, dict[str, Any]]:
    """(finish reason, message) of the first choice."""
    error = error_of(body)
    if error is not None:
        raise _Unusable("an error in a 200" if error[0] is None else f"an error in a 200 (code {error[0]})")
    choices = body.get("choices") if isinstance(body, dict) else None
    if choices == []:
        raise _Unusable("no choices")
    choice = choices[0] if isinstance(choices, list) else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise _Unusable("unreadable response")
    finish = choice.get("finish_reason")
    if body.get("error") or choice.get("error") or "error" in (finish, choice.get("native_finish_reason")):
        raise _Unusable("broken off by the provider")
    return finish, message


def _refusal(finish: Any, message: Mapping[str, Any], text: str, thought: bool) -> str:
    """Why a message is no proper answer; empty where it is one."""
    if finish == "content_filter":
        return "content filter"
    if text.strip() or finish == "length":
        return ""
    if isinstance(message.get("refusal"), str) and message["refusal"].strip():
        return "refusal"
    if message.get("tool_calls") or message.get("function_call"):
        return "tool call"
    if thought:
        return "nothing after reasoning"
    raise _Unusable(f"empty content (finish reason {finish})")


def _count(stated: int | None, characters: int) -> int:
    """Tokens as stated, else an estimate on the safe side: what is paid for should not count as nothing."""
    return math.ceil(characters / _CHARACTERS_A_TOKEN) if stated is None else stated


def _said(message: Mapping[str, Any]) -> tuple[str, str]:
    """(text, reasoning) of a message."""
    content, reasoning = message.get("content"), ""
    if isinstance(content, list):
        content, reasoning = _joined(content)
    if not isinstance(content, str | None):
        raise _Unusable("unreadable content")
    text = content or ""
    for name in ("reasoning", "reasoning_content"):
        if not reasoning and isinstance(message.get(name), str):
            reasoning = message[name]
    details = message.get("reasoning_details")
    if not reasoning and isinstance(details, list):
        parts = [part.get("text") or part.get("summary") for part in details if isinstance(part, dict)]
        reasoning = "".join(part for part in parts if isinstance(part, str))
    if thought := _THINK.match(text):
        reasoning, text = reasoning + thought[1], text[thought.end() :]
    elif "<think>" not in text and "</think>" in text:
        # Templates that open the block in the prompt leave only its end in the answer.
        before, _, text = text.partition("</think>")
        reasoning, text = reasoning + before, text.lstrip()
    return text, reasoning


def _joined(parts: list[Any]) -> tuple[str, str]:
    """Content as a list of parts: the text of all, and the reasoning among them."""
    texts, thoughts = [], []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise _Unusable("unreadable content")
        kind = str(part.get("type") or "text")
        thought = part.get("thinking") or part.get("reasoning")
        if kind in ("thinking", "reasoning"):
            thoughts.append(thought if isinstance(thought, str) else str(part.get("text") or ""))
        elif isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "refusal":
            texts.append(str(part.get("refusal") or ""))
        else:
            raise _Unusable("unreadable content")
    return "".join(texts), "".join(thoughts)


def _usage(stated: Any) -> Usage:
    if not isinstance(stated, dict):
        return Usage()
    details = stated.get("completion_tokens_details")
    reasoning = _tokens(details.get("reasoning_tokens")) if isinstance(details, dict) else None
    return Usage(
        _tokens(stated.get("prompt_tokens", stated.get("input_tokens"))),
        _tokens(stated.get("completion_tokens", stated.get("output_tokens"))),
        reasoning or 0,
        _usd(stated),
    )


def _usd(usage: Mapping[str, Any]) -> float | None:
    """Dollars as stated. For an own key at a provider OpenRouter's `cost` is its fee, mostly 0; the
    provider's price stands beside it, as it may for calls on OpenRouter's account, where it is not added.
    """
    cost = _amount(usage.get("cost"))
    details = usage.get("cost_details")
    upstream = _amount(details.get("upstream_inference_cost")) if isinstance(details, dict) else None
    own_key = usage.get("is_byok")
    if upstream is None or own_key is False:
        return cost
    return (cost or 0.0) + upstream if own_key is True else max(cost or 0.0, upstream)


def _amount(stated: object) -> float | None:
    """A number, also one written as text; None for anything that is no amount."""
    if isinstance(stated, bool) or not isinstance(stated, int | float | str):
        return None
    try:
        value = float(stated)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _tokens(stated: object) -> int | None:
    value = _amount(stated)
    return None if value is None else round(value)
