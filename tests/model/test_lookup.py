"""Models by name: which names there are, and what a wrong one is told."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest
from anyio import CancelScope

from jianmu.errors import MissingExtraError, SetupError
from jianmu.model import ProviderModel, lookup


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "kind", "address"),
    [
        ("openai:gpt-5", "openai:OpenAIResponsesModel", "https://api.openai.com/v1/"),
        ("openai-chat:gpt-5", "openai:OpenAIChatModel", "https://api.openai.com/v1/"),
        ("anthropic:claude-haiku-5-5", "anthropic:AnthropicModel", "https://api.anthropic.com"),
        ("ollama:qwen3:8b", "ollama:OllamaModel", "http://localhost:11434/v1/"),
        ("openai_compatible:http://localhost:1/v1#org/small", "openai:OpenAIChatModel", "http://localhost:1/v1/"),
    ],
)
async def test_a_name_finds_its_model(name: str, kind: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each provider has its own model class, address and name; nothing is asked of it yet."""
    for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    model = lookup(name, api_key="k")
    assert isinstance(model, ProviderModel)
    assert model.name == name
    found = await model.use()
    assert type(found) is pkgutil.resolve_name(f"pydantic_ai.models.{kind}")
    assert found.model_name == name.partition("#")[2] or name.partition(":")[2]
    assert found.base_url == address
    await model.close()


@pytest.mark.anyio
async def test_a_model_object_belongs_to_one_event_loop() -> None:
    """It is made anew when it was closed, shared while it is open, and closing once too often does nothing."""
    model = lookup("openai_compatible:http://localhost:1/v1#small")
    assert isinstance(model, ProviderModel)
    first, second = await model.use(), await model.use()
    assert first is second
    await model.close()
    assert await model.use() is first
    await model.close()
    await model.close()
    assert await model.use() is not first
    with CancelScope() as scope:
        scope.cancel()
        await model.close()
    await model.close()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("gpt-5", "a model is named 'provider:model'"),
        ("openai:", "a model is named 'provider:model'"),
        ("nobody:small", "no provider is called 'nobody'"),
        ("openai_compatible:http://localhost:1/v1", "a server is named by its address and a model"),
        ("openai_compatible:localhost#small", "a server is named by its address and a model"),
    ],
)
def test_a_wrong_name_is_told_at_once(name: str, problem: str) -> None:
    """A SetupError says which form a name has, before anything is sent."""
    with pytest.raises(SetupError, match=problem):
        lookup(name)


def test_a_missing_package_is_told_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, and without the package of one provider, the error has the line for pip."""
    with pytest.raises(MissingExtraError, match=r"pip install 'pydantic-ai-slim\[groq\]'"):
        lookup("groq:llama")
    monkeypatch.setitem(sys.modules, "pydantic_ai.direct", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jianmu\[llm\]'"):
        lookup("openai:gpt-5")


def test_the_library_is_not_imported_before_it_is_used() -> None:
    """Importing jianmu.model and jianmu.testing takes no seconds: the provider library stays out."""
    code = "import sys, jianmu.model, jianmu.testing; print('pydantic_ai' in sys.modules, 'openai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]
