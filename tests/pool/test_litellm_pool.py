"""The real LiteLLM client against a server on loopback."""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from jsonargparse import ArgumentParser

from trinity.errors import UserError
from trinity.pool.base import (
    DecodeParameters,
    InfrastructureError,
    Message,
    Paid,
    Pool,
    Price,
    RequestRefusedError,
)
from trinity.pool.litellm_pool import LiteLLMPool, ModelConfig, ProviderSettings

KEY = "sk-or-v1-0123456789abcdef"
MESSAGES: list[Message] = [{"role": "system", "content": "You work."}, {"role": "user", "content": "1 + 1?"}]
OPENROUTER, COMPATIBLE = "openrouter/qwen/qwen3.5-35b-a3b", "openai/some-local-model"
Respond = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


class Server:
    """An OpenAI-compatible server whose next answers a test sets."""

    def __init__(self) -> None:
        self.base = ""
        self.connections: Callable[[], int] = lambda: 0
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        self.respond: Respond = lambda request, body: answer(chat())

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.paths.append(request.path)
        self.authorizations.append(request.headers.get("Authorization"))
        return await self.respond(request, body)

    def returns(self, value: object, status: int = 200) -> None:
        self.respond = lambda request, body: answer(value, status)


async def answer(value: object, status: int = 200) -> web.Response:
    if isinstance(value, str):
        return web.Response(text=value, status=status, content_type="application/json")
    return web.json_response(value, status=status)


def chat(content: object = "2", finish: str | None = "stop", **message: object) -> dict[str, Any]:
    return {
        "id": "gen-1",
        "object": "chat.completion",
        "created": 1,
        "model": "whatever-the-server-says",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12, "cost": 0.00123},
    }


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    state = Server()
    app = web.Application()
    app.router.add_post("/{path:.*}", state.handle)
    async with TestServer(app) as running:
        state.base = str(running.make_url("/api/v1"))
        state.connections = lambda: len(running.runner.server.connections)
        yield state


@pytest.fixture
async def make(server: Server) -> AsyncIterator[Callable[..., LiteLLMPool]]:
    pools: list[LiteLLMPool] = []

    def build(model: str = OPENROUTER, timeout: float = 30.0, **options: Any) -> LiteLLMPool:
        first = ModelConfig(model=model, api_base=server.base, **options)
        second = ModelConfig(model=COMPATIBLE, name="other", api_base=server.base)
        pools.append(LiteLLMPool([first, second], timeout=timeout))
        return pools[-1]

    yield build
    for pool in pools:
        await pool.aclose()


@pytest.fixture(params=[OPENROUTER, COMPATIBLE])
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_an_answer_with_its_tokens_and_the_cost_that_the_server_states(server, make, model):
    completion = await make(model).complete(0, MESSAGES, DecodeParameters())
    assert (completion.text, completion.finish_reason, completion.reasoning) == ("2", "stop", "")
    assert (completion.prompt_tokens, completion.completion_tokens, completion.cost) == (7, 5, 0.00123)


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        ({"cost": 0.5}, 0.5),
        ({"cost": "0.5"}, 0.5),
        ({"cost": "5e-1 "}, 0.5),
        ({"cost": 0}, 0.0),
        # An account with own keys at a provider pays OpenRouter nothing or a fee, and the provider.
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.4}}, 0.4),
        ({"cost": 0.02, "is_byok": True, "cost_details": {"upstream_inference_cost": "0.4"}}, 0.42),
        ({"cost": 0, "cost_details": {"upstream_inference_cost": 0.4}}, 0.4),
        ({"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.4}}, 0.5),
        ({"cost": 0.5, "cost_details": {"upstream_inference_cost": None}}, 0.5),
        ({"cost": 0.5, "cost_details": None}, 0.5),
    ],
)
async def test_what_a_server_states_as_cost_in_whatever_form(server, make, model, usage, usd):
    reply = chat()
    reply["usage"] |= usage
    server.returns(reply)
    completion = await make(model, price=Price(1e6, 1e6)).complete(0, MESSAGES, DecodeParameters())
    assert (completion.cost, completion.is_priced) == (pytest.approx(usd), True)


@pytest.mark.parametrize("cost", [None, "free", -1.0, True, "NaN", "absent", "no usage"])
async def test_a_cost_that_is_no_amount_is_tokens_at_a_price_or_unknown(server, make, model, cost):
    reply = chat()
    reply["usage"]["cost"] = cost
    if cost == "absent":
        del reply["usage"]["cost"]
    if cost == "no usage":
        del reply["usage"]
    server.returns(reply)
    unknown = await make(model).complete(0, MESSAGES, DecodeParameters())
    assert (unknown.cost, unknown.is_priced) == (0.0, False)
    priced = await make(model, price=Price(1000.0, 2000.0)).complete(0, MESSAGES, DecodeParameters())
    # 14 characters of prompt and one of answer, where nobody counted: on the safe side at three a token.
    tokens = (5, 1) if cost == "no usage" else (7, 5)
    assert (priced.prompt_tokens, priced.completion_tokens) == tokens
    assert priced.is_priced and priced.cost == pytest.approx((tokens[0] * 1000 + tokens[1] * 2000) / 1e6)


ANSWERS: dict[str, tuple[object, str, str]] = {  # what comes, the text, why it is no proper answer
    "content filter": (chat("", finish="content_filter"), "", "content filter"),
    "filtered in the middle": (chat("The fir", finish="content_filter"), "The fir", "content filter"),
    "refusal": (chat(None, refusal="I can't help with that."), "I can't help with that.", "refusal"),
    "filtered refusal": (chat(None, finish="content_filter", refusal="No."), "No.", "content filter"),
    "tool call": (chat(None, finish="tool_calls", tool_calls=[{"id": "a", "type": "function",
                  "function": {"name": "f", "arguments": "{}"}}]), "", "tool call"),
    "function call": (chat("", finish="function_call", function_call={"name": "f", "arguments": "{}"}), "",
                      "tool call"),
    "reasoning only": (chat(None, reasoning="Hm."), "", "nothing after reasoning"),
    "reasoning details only": (chat("", reasoning_details=[{"type": "reasoning.text", "text": "Hm."}]), "",
                               "nothing after reasoning"),
    "reasoning only, in the text": (chat("<think>Hm.</think>"), "", "nothing after reasoning"),
    "reasoning that is only counted": ({**chat(""), "usage": {"completion_tokens": 9,
                                        "completion_tokens_details": {"reasoning_tokens": 9}}}, "",
                                       "nothing after reasoning"),
    "parts": (chat([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]), "42", ""),
    "parts with thoughts": (chat([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "2"}]),
                            "2", ""),
    "other parts": (chat([{"type": "output_text", "text": "2"}, "!"]), "2!", ""),
    "an end of thoughts": (chat("Hm.</think>\n\n2"), "2", ""),
    "comments above": (": OPENROUTER PROCESSING\n\n" * 3 + json.dumps(chat("2")), "2", ""),
    "blank lines above": ("\n\n   \n" + json.dumps(chat("2")), "2", ""),
    "a byte order mark": ("\ufeff" + json.dumps(chat("2")), "2", ""),
    "no finish reason": (chat("2", finish=None), "2", ""),
    "another finish reason": (chat("2", finish="eos"), "2", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS)
async def test_what_a_model_says_instead_of_an_answer_is_its_answer(server, make, model, case):
    body, text, refusal = ANSWERS[case]
    server.returns(body)
    completion = await make(model).complete(0, MESSAGES, DecodeParameters())
    assert (completion.text, completion.refusal, completion.finish_reason) == (text, refusal, "stop")
    assert len(server.bodies) == 1


async def test_a_legacy_usage_is_read(server, make, model):
    server.returns({**chat(), "usage": {"input_tokens": 70, "output_tokens": 30, "cost": 1}})
    completion = await make(model).complete(0, MESSAGES, DecodeParameters())
    assert (completion.prompt_tokens, completion.completion_tokens, completion.cost) == (70, 30, 1.0)


async def test_the_request_holds_what_was_asked_and_nothing_else(server, make, model):
    decode = DecodeParameters(max_tokens=77, temperature=0.5, top_p=0.9, reasoning_effort="minimal")
    extra = {"provider": {"order": ["a"], "allow_fallbacks": False}}
    await make(model, extra_body=extra).complete(0, MESSAGES, decode)
    body = server.bodies[0]
    if model == OPENROUTER:
        assert body.pop("usage") == {"include": True}
    assert body == {
        "model": model.split("/", 1)[1],
        "messages": MESSAGES,
        "max_tokens": 77,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning_effort": "minimal",
        **extra,
    }
    assert server.paths == ["/api/v1/chat/completions"]


@pytest.mark.parametrize("effort", ["none", "low", "xhigh", None])
async def test_reasoning_effort_goes_out_as_given_and_none_leaves_it_out(server, make, model, effort):
    await make(model).complete(0, MESSAGES, DecodeParameters(reasoning_effort=effort))
    assert server.bodies[0].get("reasoning_effort") == effort
    assert ("reasoning_effort" in server.bodies[0]) == (effort is not None)


async def test_reasoning_effort_reaches_models_that_litellm_believes_cannot_reason(server, make):
    await make("openai/gpt-4o").complete(0, MESSAGES, DecodeParameters(reasoning_effort="minimal"))
    assert server.bodies[0]["reasoning_effort"] == "minimal"


async def test_a_models_own_max_tokens_come_first(server, make):
    await make(max_tokens=9).complete(0, MESSAGES, DecodeParameters(max_tokens=77))
    assert server.bodies[0]["max_tokens"] == 9


@pytest.mark.parametrize(("own", "longest"), [(None, 77), (9, 9)])
async def test_an_answer_may_take_the_tokens_of_several_turns(server, make, own, longest):
    pool, decode = make(max_tokens=own), DecodeParameters(max_tokens=77, turns=5)
    await pool.complete(0, MESSAGES, decode)
    assert server.bodies[0]["max_tokens"] == 5 * longest
    assert pool.identity(0, decode)["max_tokens"] == 5 * longest


async def test_extra_body_is_the_same_for_every_call(server, make, model):
    pool = make(model, extra_body={"provider": {"order": ["a"]}})
    for _ in range(2):
        await pool.complete(0, MESSAGES, DecodeParameters())
    assert server.bodies[0] == server.bodies[1]


@pytest.mark.parametrize(
    ("message", "reasoning", "text"),
    [
        ({"reasoning": "Hm."}, "Hm.", "2"),
        ({"reasoning_content": "Hm."}, "Hm.", "2"),
        ({"content": "<think>Hm.</think>2"}, "Hm.", "2"),
        ({"content": "Write <think> like this."}, "", "Write <think> like this."),
    ],
)
async def test_reasoning_is_kept_apart_from_the_text(server, make, model, message, reasoning, text):
    server.returns(chat(**{"content": "2", **message}))
    completion = await make(model).complete(0, MESSAGES, DecodeParameters())
    assert (completion.reasoning.strip(), completion.text) == (reasoning, text)


@pytest.mark.parametrize("content", ["", None, "half an ans"])
async def test_an_answer_cut_by_its_token_limit_is_a_result(server, make, model, content):
    server.returns(chat(content, finish="length", reasoning="Long thoughts."))
    completion = await make(model).complete(0, MESSAGES, DecodeParameters())
    assert (completion.finish_reason, completion.text) == ("length", content or "")
    assert (completion.reasoning, completion.cost) == ("Long thoughts.", 0.00123)


async def test_thoughts_cut_by_the_token_limit_stay_reasoning(server, make, model):
    server.returns(chat("<think>Let me", finish="length"))
    completion = await make(model).complete(0, MESSAGES, DecodeParameters())
    assert (completion.text, completion.reasoning) == ("", "Let me")


BROKEN: dict[str, tuple[object, int]] = {
    "500": ({"error": {"message": f"oops {KEY}"}}, 500),
    "502 in HTML": ("<html>Bad Gateway</html>", 502),
    "503": ({"error": {"message": "busy"}}, 503),
    "429": ({"error": {"message": "slow down"}}, 429),
    "408": ({"error": {"message": "too slow"}}, 408),
    "cut JSON": ('{"id": ', 200),
    "HTML": ("<html>Log in</html>", 200),
    "a list": ([1], 200),
    "no choices": ({**chat(), "choices": []}, 200),
    "choices missing": ({k: v for k, v in chat().items() if k != "choices"}, 200),
    "null choices": ({**chat(), "choices": None}, 200),
    "null message": ({**chat(), "choices": [{"index": 0, "finish_reason": "stop", "message": None}]}, 200),
    "an error in a 200": ({"error": {"message": "Provider returned error", "code": 502}}, 200),
    "finish reason error": (chat("2", finish="error"), 200),
    "empty content": (chat(""), 200),
    "blank content": (chat(" \n"), 200),
    "null content": (chat(None), 200),
    "content of another type": (chat({"a": 1}), 200),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_faulty_server_is_an_infrastructure_error_after_one_request(server, make, model, case):
    server.returns(*BROKEN[case])
    with pytest.raises(InfrastructureError) as caught:
        await make(model, name="short").complete(0, MESSAGES, DecodeParameters())
    assert caught.value.agent == "short"
    assert 0 < len(caught.value.cause) < 80
    assert len(server.bodies) == 1, "a retry belongs elsewhere"


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        ("429", "RateLimitError (status 429)"),
        ("408", "timeout"),
        ("no choices", "no choices"),
        ("finish reason error", "broken off by the provider"),
        ("empty content", "empty content (finish reason stop)"),
        ("an error in a 200", "an error in a 200 (code 502)"),
    ],
)
async def test_the_cause_names_what_went_wrong(server, make, model, case, cause):
    server.returns(*BROKEN[case])
    with pytest.raises(InfrastructureError) as caught:
        await make(model).complete(0, MESSAGES, DecodeParameters())
    assert caught.value.cause == cause


async def test_a_closed_connection_is_an_infrastructure_error(server, make, model):
    async def drop(request: web.Request, body: dict[str, Any]) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    server.respond = drop
    with pytest.raises(InfrastructureError):
        await make(model).complete(0, MESSAGES, DecodeParameters())


async def test_a_server_that_is_not_there_is_an_infrastructure_error(model, unused_tcp_port):
    config = ModelConfig(model=model, api_base=f"http://127.0.0.1:{unused_tcp_port}/v1")
    pool = LiteLLMPool([config])
    with pytest.raises(InfrastructureError):
        await pool.complete(0, MESSAGES, DecodeParameters())
    await pool.aclose()


@pytest.mark.parametrize("manner", ["silence", "half a body", "drip"])
async def test_a_server_that_stalls_is_a_timeout(server, make, model, manner):
    release = asyncio.Event()

    async def stall(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if manner != "silence":
            await response.prepare(request)
            await response.write(b'{"id": ')
        while manner == "drip" and not release.is_set():
            await response.write(b" ")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(release.wait(), 0.05)
        await release.wait()
        return response

    server.respond = stall
    try:
        with pytest.raises(InfrastructureError) as caught:
            await make(model, timeout=0.3).complete(0, MESSAGES, DecodeParameters())
    finally:
        release.set()
    assert caught.value.cause == "timeout"


PAID_FOR = [
    "empty content",
    "no choices",
    "choices missing",
    "finish reason error",
    "content of another type",
]


@pytest.mark.parametrize("case", [*PAID_FOR, "an error in a 200", "cut JSON", "500"])
async def test_what_was_paid_for_and_thrown_away_is_known(server, make, model, case):
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "cost": 0.05}
    body, status = BROKEN[case]
    if case == "cut JSON":
        server.returns(
            '{"id": "a", "usage": ' + json.dumps(usage) + ', "choices": [{"message": {"content": "2'
        )
    else:
        assert isinstance(body, dict)
        server.returns({**body, "usage": usage}, status)
    with pytest.raises(InfrastructureError) as caught:
        await make(model).complete(0, MESSAGES, DecodeParameters())
    assert caught.value.paid == Paid(0.05, 1, 7, 5)


async def test_what_was_thrown_away_costs_tokens_at_a_price_where_none_is_stated(server, make, model):
    server.returns({**chat(""), "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    with pytest.raises(InfrastructureError) as caught:
        await make(model, price=Price(1000.0, 2000.0)).complete(0, MESSAGES, DecodeParameters())
    assert caught.value.paid == Paid(0.017, 1, 7, 5)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("status", [400, 403, 413, 422, 451])
async def test_a_refused_request_is_told_from_a_model_that_cannot_be_used(
    server, make, model, status, inside
):
    server.returns({"error": {"message": "Because of this.", "code": status}}, 200 if inside else status)
    with pytest.raises(RequestRefusedError, match=r"Because of this\.") as caught:
        await make(model).complete(0, MESSAGES, DecodeParameters())
    result = caught.value.completion
    assert (result.text, result.finish_reason, result.refusal) == ("", "refused", f"status {status}")
    assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 503, 529])
async def test_what_a_repetition_may_mend_is_no_refusal(server, make, model, status):
    for outer in (200, status):
        server.returns({"error": {"message": "Busy.", "code": status}}, outer)
        with pytest.raises(InfrastructureError):
            await make(model).complete(0, MESSAGES, DecodeParameters())


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404])
async def test_a_refusal_is_one_sentence_for_the_user(server, make, model, status, inside):
    server.returns({"error": {"message": "Because of this.", "code": status}}, 200 if inside else status)
    with pytest.raises(UserError) as caught:
        await make(model).complete(0, MESSAGES, DecodeParameters())
    sentence = str(caught.value)
    assert model in sentence and f"status {status}" in sentence and "Because of this." in sentence
    assert "\n" not in sentence and len(sentence) < 500
    assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 429, 500])
@pytest.mark.parametrize("secret", [KEY, "an_unusual/key+without-prefix="])
async def test_a_key_is_sent_but_stands_in_no_message(
    server, make, model, status, secret, monkeypatch, caplog, capfd
):
    monkeypatch.setenv("MY_KEY", secret)
    caplog.set_level(logging.DEBUG)
    server.returns({"error": {"message": f"The key {secret} (Bearer {secret}) is bad."}}, status)
    pool = make(model, api_key_variable="MY_KEY")
    with pytest.raises((UserError, InfrastructureError)) as caught:
        await pool.complete(0, MESSAGES, DecodeParameters())
    assert server.authorizations == [f"Bearer {secret}"]
    error: BaseException | None = caught.value
    assert error is not None and error.__cause__ is None and error.__context__ is None
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    ours = [frame for frame in frames.stack if Path(frame.filename).name == "litellm_pool.py"]
    assert ours
    written = [
        repr(error),
        str(error),
        *(str(frame.locals) for frame in ours),
        caplog.text,
        repr(pool._models),
    ]
    written += capfd.readouterr()
    assert all(secret not in text for text in written)


async def test_nothing_is_printed_on_a_failure(server, make, model, capfd):
    server.returns(*BROKEN["500"])
    with pytest.raises(InfrastructureError):
        await make(model).complete(0, MESSAGES, DecodeParameters())
    assert capfd.readouterr() == ("", "")


async def test_a_local_server_is_sent_no_key_of_the_environment(server, make, model, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    await make(model).complete(0, MESSAGES, DecodeParameters())
    assert server.authorizations == ["Bearer none"]


def test_each_models_concurrency_is_its_limit(make):
    assert make(OPENROUTER, concurrency=2).limits == [2, 16]


async def test_closing_the_pool_closes_its_connections(server, make, model):
    pool = make(model)
    await pool.complete(0, MESSAGES, DecodeParameters())
    assert server.connections() == 1
    await pool.aclose()
    async with asyncio.timeout(5):
        while server.connections():
            await asyncio.sleep(0)


async def test_a_pool_can_be_used_after_another_was_closed(server, make, model):
    first, second = make(model), make(model)
    await first.complete(0, MESSAGES, DecodeParameters())
    await first.aclose()
    assert (await second.complete(0, MESSAGES, DecodeParameters())).text == "2"


def remote(model: str, **options: Any) -> ModelConfig:
    return ModelConfig(model=model, **options)


def test_a_pool_of_one_model_is_refused_by_name():
    with pytest.raises(UserError, match=r"LiteLLMPool holds 1 model\(s\) \(qwen3.5-35b-a3b\)"):
        LiteLLMPool([remote(OPENROUTER)]).check()


def test_two_models_of_one_name_are_refused():
    with pytest.raises(UserError, match=r"holds qwen3\.5-35b-a3b twice"):
        LiteLLMPool([remote(OPENROUTER), remote(OPENROUTER)]).check()


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_is_named_before_the_first_call(monkeypatch, value):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("OPENROUTER_API_KEY", value)
    pool = LiteLLMPool([remote(OPENROUTER), remote(OPENROUTER, name="b")])
    with pytest.raises(UserError, match=r"OPENROUTER_API_KEY is not set"):
        pool.check()
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    pool.check()


@pytest.mark.parametrize(
    ("config", "variable"),
    [
        (remote("openrouter/a/b"), "OPENROUTER_API_KEY"),
        (remote("anthropic/a"), "ANTHROPIC_API_KEY"),
        (remote("openai/a", api_base="http://127.0.0.1:8000/v1"), None),
        (remote("openai/a", api_base="http://[::1]:8000/v1"), None),
        (remote("openai/a", api_base="http://localhost:8000/v1"), None),
        (remote("openai/a", api_base="http://localhost.example.org/v1"), "OPENAI_API_KEY"),
        (remote("openai/a", api_base="https://llm.example.org/v1"), "OPENAI_API_KEY"),
        (remote("openai/a", api_base="http://127.0.0.1/v1", api_key_variable="MINE"), "MINE"),
    ],
)
def test_which_variable_holds_the_key(config, variable):
    assert config.key_variable == variable


@pytest.mark.parametrize("name", ["qwen3.5-35b-a3b", "nobody/qwen3.5", "openrouter"])
def test_a_model_without_a_known_provider_is_refused(name, monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    with pytest.raises(UserError, match=f"'{name}' names no provider"):
        LiteLLMPool([remote(OPENROUTER), remote(name, name="b")]).check()


def test_values_out_of_range_are_refused():
    with pytest.raises(UserError, match="concurrency 0"):
        LiteLLMPool([remote(OPENROUTER, concurrency=0)])
    with pytest.raises(UserError, match="timeout is -1"):
        LiteLLMPool([remote(OPENROUTER)], timeout=-1)


def test_the_pool_config_builds_a_pool_of_three(monkeypatch, tmp_path):
    overlay = Path(__file__).parents[2] / "configs" / "pools" / "openrouter.yaml"
    config = tmp_path / "pool.yaml"
    config.write_text(yaml.safe_dump(yaml.safe_load(overlay.read_text())["model"]))
    parser = ArgumentParser()
    parser.add_argument("--pool", type=Pool)
    pool = parser.instantiate_classes(parser.parse_path(config)).pool
    assert pool.agents == ["qwen3.5-35b-a3b", "minimax-m3", "deepseek-v4-flash"]
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    pool.check()


def test_litellm_is_imported_late_and_without_fetching_prices():
    code = """
import json, sys
from trinity.pool.litellm_pool import LiteLLMPool, ModelConfig, _litellm
late = "litellm" not in sys.modules
_litellm()
from litellm.litellm_core_utils.get_model_cost_map import get_model_cost_map_source_info
print(json.dumps([late, get_model_cost_map_source_info()["is_env_forced"]]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (json.loads(done.stdout), done.stderr) == ([True, True], "")


async def test_usage_that_is_stated_twice_counts_once(server, make, model):
    body = json.dumps(chat())
    usage = json.dumps({"usage": chat()["usage"]})[1:-1]
    server.returns(f"{body[:-1]}, {usage}}}")
    completion = await make(model).complete(0, MESSAGES, DecodeParameters())
    assert (completion.prompt_tokens, completion.completion_tokens, completion.cost) == (7, 5, 0.00123)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("17", 17.0), ("0.5", 0.5), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", None), ("", None)],
)
async def test_what_a_server_asks_to_wait_is_known(server, make, model, header, seconds):
    async def busy(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "slow"}}, status=429, headers={"Retry-After": header})

    server.respond = busy
    with pytest.raises(InfrastructureError) as caught:
        await make(model).complete(0, MESSAGES, DecodeParameters())
    assert caught.value.retry_after == seconds


async def test_a_provider_is_pinned_in_the_request(server, make, model):
    await make(model, provider=ProviderSettings(order=["a", "b"])).complete(0, MESSAGES, DecodeParameters())
    pinned = {"order": ["a", "b"], "allow_fallbacks": False, "require_parameters": True}
    assert server.bodies[0]["provider"] == pinned
