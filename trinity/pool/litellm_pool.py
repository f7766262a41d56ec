"""Real LLMs behind an API or a local server, through LiteLLM's client."""

import asyncio
import functools
import importlib
import ipaddress
import math
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from trinity.errors import UserError
from trinity.pool.base import (
    Completion,
    DecodeParameters,
    InfrastructureError,
    Message,
    Pace,
    Pool,
    Price,
    RetrySettings,
)

# Statuses that no repetition mends, and what the user can do about each.
_REFUSALS = {
    400: "check the model's name and which decode parameters it takes",
    401: "check the API key",
    402: "add credit to the account",
    403: "check what the API key and the account may use",
    404: "check the model's name and api_base",
}
_CREDENTIAL = re.compile(r"(?i)bearer\s+\S+|\bsk-[\w*.-]+")
_THINK = re.compile(r"\s*<think>(.*?)(?:</think>\s*|$)", re.DOTALL)


@dataclass(frozen=True)
class ProviderSettings:
    """OpenRouter's routing of one model, so that it stays one model.

    Args:
        order: the providers to try, by OpenRouter's names; None leaves it to OpenRouter.
        allow_fallbacks: let others serve the request if these cannot.
        require_parameters: only providers that know every parameter of the request.
    """

    order: list[str] | None = None
    allow_fallbacks: bool = False
    require_parameters: bool = True

    @property
    def fields(self) -> dict[str, Any]:
        """OpenRouter's `provider` object."""
        named = {} if self.order is None else {"order": self.order}
        return named | {
            "allow_fallbacks": self.allow_fallbacks,
            "require_parameters": self.require_parameters,
        }


@dataclass(frozen=True)
class ModelConfig:
    """One LLM of a `LiteLLMPool`.

    Args:
        model: LiteLLM's name, provider first, e.g. `openrouter/qwen/qwen3.5-35b-a3b`, or
            `openai/<anything>` with `api_base` for any OpenAI-compatible server.
        name: shown in tables; default: the last part of `model`.
        concurrency: most calls of this model in flight at once.
        api_base: the server's address; default: the provider's own.
        api_key_variable: name of the environment variable that holds the key; default: the provider's name in
            capitals and `_API_KEY` (`OPENROUTER_API_KEY`), or no key if `api_base` is on this machine.
        max_tokens: in place of the decode parameters' for this model.
        extra_body: further fields of the request's body.
        provider: which of OpenRouter's providers may serve the model.
        pace: requests and tokens a minute.
        price: US dollars for a million tokens, for budgets and `--dry_run`; costs are the server's statement.
    """

    model: str
    name: str | None = None
    concurrency: int = 16
    api_base: str | None = None
    api_key_variable: str | None = None
    max_tokens: int | None = None
    extra_body: dict[str, Any] | None = None
    provider: ProviderSettings | None = None
    pace: Pace = Pace()  # noqa: RUF009 - frozen
    price: Price | None = None

    @property
    def label(self) -> str:
        """The name in tables."""
        return self.name or self.model.rsplit("/", 1)[-1]

    @property
    def key_variable(self) -> str | None:
        """The environment variable that holds the key; None if no key is needed."""
        if self.api_key_variable is not None:
            return self.api_key_variable
        if self.api_base is not None and _is_loopback(self.api_base):
            return None
        return self.model.split("/", 1)[0].upper().replace("-", "_") + "_API_KEY"

    @property
    def key(self) -> str:
        """The API key, read anew each time so that no object holds it."""
        # Never None: LiteLLM would look for a key of its own, and send it wherever api_base points.
        return (os.environ.get(self.key_variable) if self.key_variable else None) or "none"


class LiteLLMPool(Pool):
    """LLMs reached through `litellm.acompletion`.

    Each call is one request: no retry, no fallback to another model. The cost is what the server states in
    `usage.cost` (OpenRouter does), else 0. A server's fault is an InfrastructureError; a refusal that no
    repetition mends (status 400, 401, 402, 403, 404) is a UserError. API keys come from the environment and
    stand in no message.

    Args:
        models: the LLMs, in the order of the head's logits.
        timeout: seconds that one call may take in all.
        retry: what whoever makes the calls (`trinity.pool.reliable`) does about those that fail.
    """

    def __init__(
        self,
        models: list[ModelConfig],
        timeout: float = 600.0,
        retry: RetrySettings = RetrySettings(),  # noqa: B008 - frozen
    ) -> None:
        for config in models:
            if config.concurrency < 1:
                raise UserError(f"{config.label} has concurrency {config.concurrency}: give at least 1.")
        if not timeout > 0:
            raise UserError(f"The pool's timeout is {timeout} s: give a positive number of seconds.")
        self._models = list(models)
        self._timeout = timeout
        self._retry = retry

    @property
    def agents(self) -> Sequence[str]:
        """The models' short names."""
        return [config.label for config in self._models]

    @property
    def limits(self) -> Sequence[int]:
        """The models' `concurrency`."""
        return [config.concurrency for config in self._models]

    @property
    def retry(self) -> RetrySettings:
        """As given."""
        return self._retry

    @property
    def paces(self) -> Sequence[Pace]:
        """The models' `pace`."""
        return [config.pace for config in self._models]

    @property
    def prices(self) -> Sequence[Price | None]:
        """The models' `price`."""
        return [config.price for config in self._models]

    def identity(self, agent: int, decode: DecodeParameters) -> dict[str, Any]:
        """The request without messages, keys and addresses."""
        request = self._request(self._models[agent], [], decode)
        local = ("messages", "api_base", "timeout", "num_retries", "max_retries", "allowed_openai_params")
        return {name: value for name, value in request.items() if name not in local} | {
            "sample": decode.sample
        }

    def check(self) -> None:
        """Raises UserError for an unusable list of models, a name without provider, or a missing key."""
        super().check()
        for config in self._models:
            _check_provider(config)
            if config.key_variable and not os.environ.get(config.key_variable, "").strip():
                raise UserError(
                    f"{config.model} needs an API key, but the environment variable {config.key_variable} is "
                    "not set: export it, or name another one as api_key_variable."
                )

    async def complete(self, agent: int, messages: Sequence[Message], decode: DecodeParameters) -> Completion:
        """Ask one model, once.

        Raises InfrastructureError if no usable answer came back, UserError if the server refuses for good.
        """
        config = self._models[agent]
        request = self._request(config, messages, decode)
        failure: Exception
        try:
            # LiteLLM's own timeout starts anew with every byte that arrives.
            async with asyncio.timeout(self._timeout):
                response = await _litellm().acompletion(**request, api_key=config.key)
            return _read(config, response)
        except InfrastructureError:
            raise
        except TimeoutError:
            failure = InfrastructureError(config.label, "timeout")
        except Exception as error:
            failure = self._failure(config, error)
        # Outside the handler: a chained exception would bring the client's own text, which may quote a key.
        raise failure

    async def aclose(self) -> None:
        """Close LiteLLM's connections; nothing to do if no call was made."""
        if _litellm.cache_info().currsize:
            await _litellm().close_litellm_async_clients()
            _litellm().in_memory_llm_clients_cache.flush_cache()

    def _request(
        self, config: ModelConfig, messages: Sequence[Message], decode: DecodeParameters
    ) -> dict[str, Any]:
        longest = decode.max_tokens if config.max_tokens is None else config.max_tokens
        request: dict[str, Any] = {
            "model": config.model,
            "messages": [dict(message) for message in messages],
            "max_tokens": decode.turns * longest,
            "temperature": decode.temperature,
            "top_p": decode.top_p,
            "api_base": config.api_base,
            "timeout": self._timeout,
            "num_retries": 0,
            "max_retries": 0,
        }
        if decode.reasoning_effort is not None:
            request["reasoning_effort"] = decode.reasoning_effort
            # Else LiteLLM refuses the field for models that its own table does not list.
            request["allowed_openai_params"] = ["reasoning_effort"]
        provider = {} if config.provider is None else {"provider": config.provider.fields}
        if body := {**provider, **(config.extra_body or {})}:
            request["extra_body"] = body
        return request

    def _failure(self, config: ModelConfig, error: Exception) -> Exception:
        """What an exception of LiteLLM means: its kind and status, and only for refusals its text.

        LiteLLM reports lost connections and responses that it can't read as status 500, too.
        """
        status = getattr(error, "status_code", None)
        if status in _REFUSALS:
            said = self._redact(str(getattr(error, "message", error)))
            return UserError(
                f"{config.model} refused the call with status {status} ({said}): {_REFUSALS[status]}."
            )
        kind = type(error).__name__
        if "Timeout" in kind:
            return InfrastructureError(config.label, "timeout")
        if isinstance(status, int) and status >= 400:
            return InfrastructureError(config.label, f"{kind} (status {status})", _retry_after(error))
        return InfrastructureError(config.label, f"{kind} (unreadable response)")

    def _redact(self, text: str) -> str:
        """One short line of the text, without this pool's keys or anything that looks like one."""
        for config in self._models:
            if config.key_variable and config.key != "none":
                text = text.replace(config.key, "[key]")
        text = " ".join(_CREDENTIAL.sub("[key]", text).split())
        return text if len(text) <= 300 else text[:299] + "…"


@functools.lru_cache(maxsize=1)
def _litellm() -> Any:
    """LiteLLM, imported late (it takes seconds) and kept from printing."""
    # Without it the import fetches a price file from the network.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    return litellm


def _retry_after(error: Exception) -> float | None:
    """The seconds of a Retry-After header (RFC 9110, 10.2.3: a number or a date), if there is one."""
    # Where LiteLLM keeps a response's headers depends on the provider.
    headers = getattr(error, "litellm_response_headers", None) or {}
    headers = headers or getattr(getattr(error, "response", None), "headers", None) or {}
    stated = str(headers.get("retry-after", "")).strip()
    if re.fullmatch(r"\d{1,6}(\.\d+)?", stated):
        return float(stated)
    try:
        date = parsedate_to_datetime(stated)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())


def _check_provider(config: ModelConfig) -> None:
    known = {getattr(provider, "value", provider) for provider in _litellm().provider_list}
    if config.model.split("/", 1)[0] not in known or "/" not in config.model:
        raise UserError(
            f"The model {config.model!r} names no provider that LiteLLM knows: write it as provider/model, "
            "e.g. openrouter/qwen/qwen3.5-35b-a3b."
        )


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(config: ModelConfig, response: Any) -> Completion:
    """A response as a Completion. Raises InfrastructureError if it holds no usable answer."""
    if not response.choices:
        raise InfrastructureError(config.label, "no choices", answered=True)
    choice = response.choices[0]
    # LiteLLM turns the finish reason "error" (a provider that failed half-way) into "stop".
    fields = getattr(choice, "provider_specific_fields", None) or {}
    if fields.get("error") or fields.get("native_finish_reason") == "error":
        raise InfrastructureError(config.label, "broken off by the provider", answered=True)
    text = choice.message.content or ""
    reasoning = getattr(choice.message, "reasoning_content", None) or ""
    # LiteLLM moves a closed <think> block to the reasoning, but not one that the token limit cut.
    if thought := _THINK.match(text):
        reasoning, text = reasoning + thought[1], text[thought.end() :]
    cut = choice.finish_reason == "length"
    if not cut and not text.strip():
        cause = f"empty content (finish reason {choice.finish_reason})"
        raise InfrastructureError(config.label, cause, answered=True)
    usage = getattr(response, "usage", None)
    return Completion(
        text=text,
        prompt_tokens=getattr(usage, "prompt_tokens", 0) or 0,
        completion_tokens=getattr(usage, "completion_tokens", 0) or 0,
        cost=_cost(getattr(usage, "cost", None)),
        finish_reason="length" if cut else "stop",
        reasoning=reasoning,
    )


def _cost(stated: object) -> float:
    """US dollars as the server states them; 0 for anything that is no amount."""
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return 0.0
    return float(stated) if math.isfinite(stated) and stated >= 0 else 0.0
