"""A sandbox client for the OpenAI Agents SDK: sessions of the operator in the place of its own sandboxes.

    client = ToolcallSandboxClient(AsyncToolcall("agents"))
    run_config = RunConfig(sandbox=SandboxRunConfig(client=client))

It needs openai-agents: pip install 'toolcall[openai-agents]'.
"""

from __future__ import annotations

from typing import Any

_OF_SANDBOX = (
    "ToolcallSandboxClient", "ToolcallSandboxClientOptions", "ToolcallSandboxSession", "ToolcallSandboxSessionState",
)
__all__ = list(_OF_SANDBOX)


def __getattr__(name: str) -> Any:
    """Loads the client when it is asked for: without openai-agents, that is an ImportError that says so."""
    if name not in _OF_SANDBOX:
        raise AttributeError(f"module 'toolcall.openai_agents' has no attribute {name!r}")
    try:
        from . import sandbox
    except ImportError as error:
        raise ImportError("toolcall.openai_agents needs openai-agents: pip install 'toolcall[openai-agents]'") from error
    return getattr(sandbox, name)
