"""Real LLMs behind an API or a local server, through LiteLLM's client."""

import asyncio
import functools
import importlib
import ipaddress
import os
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from trinity.errors import UserError
from trinity.pool.base import (
    Completion,
    DecodeParameters,
    InfrastructureError,
    Message,
    Pace,
    Paid,
    Pool,
    Price,
    RequestRefusedError,
    RetrySettings,
)
from trinity.pool.reply import body_of, error_of, read, usage_of
from trinity.pool.wire import Heard, Wire, hear

# Statuses by which a model can't be used at all, and what the user can do about each.
_UNUSABLE = {
    401: "check the API key",
    402: "add credit to the account",
    404: "check the model's name and api_base",
}
# Statuses by which a request is refused, or again the model: what to do in the second case.
_REFUSED = {
    400: "check the model's name and which decode parameters it takes",
    403: "check what the API key and the account may use",
}
_PASSING = {408, 409, 425, 429}  # what a repetition may mend; so it may all from 500 on
_CREDENTIAL = re.compile(r"(?i)bearer\s+\S+|\bsk-[\w*.-]+")


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
        price: US dollars for a million tokens: for budgets and `--dry_run`, and what a call costs where the
            server does not say. Of a model that costs nothing: {prompt: 0, completion: 0}.
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
    `usage.cost` (OpenRouter does), else tokens at the model's price, else unknown. A server's fault is an
    InfrastructureError with what it cost; a model that can't be used (status 401, 402, 404) is a UserError; a
    refused request (any other status below 500 that no repetition mends) a RequestRefusedError. API keys come
    from the environment and stand in no message.

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
        self._wire: Wire | None = None

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

    @property
    def states_cost(self) -> Sequence[bool]:
        """OpenRouter states each call's cost; of other servers that is not known."""
        return [c.price is not None or c.model.startswith("openrouter/") for c in self._models]

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

        Raises InfrastructureError if no usable answer came back, RequestRefusedError if the server would not
        take the request, UserError if the model can't be used.
        """
        config = self._models[agent]
        request = self._request(config, messages, decode)
        if self._wire is None:
            self._wire = Wire(_litellm())
        request |= self._wire.options(config.model)
        heard, error = hear(), None
        try:
            # LiteLLM's own timeout starts anew with every byte that arrives.
            async with asyncio.timeout(self._timeout):
                response = await _litellm().acompletion(**request, api_key=config.key)
            if heard.status is None:
                heard.status, heard.body = 200, response.model_dump_json()
        except Exception as raised:
            error = raised
        failure = self._failure(config, error, heard)
        # Not chained, and no local any more: the client's own text may quote a key.
        del error
        if failure is not None:
            raise failure
        characters = sum(len(message["content"]) for message in messages)
        return read(config.label, heard.body, config.price, characters)

    async def aclose(self) -> None:
        """Close LiteLLM's connections; nothing to do if no call was made."""
        if self._wire is not None:
            wire, self._wire = self._wire, None
            await wire.aclose()

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

    def _failure(self, config: ModelConfig, error: Exception | None, heard: Heard) -> Exception | None:
        """Why there is nothing to read; None where there is a body, which LiteLLM may have failed to read.

        LiteLLM reports lost connections and responses that it can't read as status 500, too: the status that
        was heard comes first. An error inside a 200 counts by its own code.
        """
        stated = error_of(body_of(heard.body))
        status = heard.status or getattr(error, "status_code", None)
        if heard.status == 200:
            status = stated[0] if stated else 200
        if status in _UNUSABLE or _is_refusal(status):
            said = self._redact(stated[1] if stated else str(getattr(error, "message", error)))
            advice = _UNUSABLE.get(status) or _REFUSED.get(status, "check what the model takes")
            sentence = f"{config.model} refused the call with status {status} ({said}): {advice}."
            if status in _UNUSABLE:
                return UserError(sentence)
            return RequestRefusedError(sentence, _refused(status, usage_of(heard.body).paid(config.price)))
        if heard.status == 200 and not isinstance(error, TimeoutError):
            return None
        return self._lost(config, error, status, heard)

    @staticmethod
    def _lost(
        config: ModelConfig, error: Exception | None, status: object, heard: Heard
    ) -> InfrastructureError:
        paid = usage_of(heard.body).paid(config.price)
        kind = type(error).__name__
        if "Timeout" in kind:
            return InfrastructureError(config.label, "timeout", paid=paid)
        if isinstance(status, int) and status >= 400:
            cause = f"{kind} (status {status})"
            return InfrastructureError(config.label, cause, _retry_after(error), paid=paid)
        return InfrastructureError(config.label, f"{kind} (unreadable response)", paid=paid)

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
    # Of responses in other forms than it expects, which are read here all the same.
    warnings.filterwarnings("ignore", message="(?s).*Pydantic serializer warnings")
    return litellm


def _retry_after(error: Exception | None) -> float | None:
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


def _is_refusal(status: object) -> TypeGuard[int]:
    """Whether a status says that this request will not be taken, now or later."""
    return isinstance(status, int) and 400 <= status < 500 and status not in _PASSING | _UNUSABLE.keys()


def _refused(status: int, paid: Paid) -> Completion:
    """The result of a request that a provider refused: an empty answer."""
    return Completion(
        text="",
        prompt_tokens=paid.prompt_tokens,
        completion_tokens=paid.completion_tokens,
        cost=paid.usd,
        finish_reason="refused",
        refusal=f"status {status}",
    )
