"""An agent that runs its model's tool calls in a session. Started again, it gets the answers of the calls that ran.

usage: agent.py CONVERSATION [ANSWERS]

ANSWERS: end after so many answers, as a crash would. It runs in the namespace of the kubeconfig's context, or of its pod.
"""

import asyncio
import sys

from toolcall import AsyncToolcall
from toolcall.executor import ToolExecutor, ToolRequest


def model(messages):
    """Stands for a model: it asks for a tool, or says what it found. Call your model's API here."""
    answers = [m["content"] for m in messages if m["role"] == "tool"]
    plan = [
        ToolRequest("call_1", "bash", {"command": "echo ran >> log; seq 3 > numbers; cat numbers"}),
        ToolRequest("call_2", "bash", {"command": "curl https://example.com/mean"}),
        ToolRequest("call_3", "python", {"code": "n = [int(x) for x in open('numbers')]; print(sum(n) / len(n))"}),
        ToolRequest("call_4", "bash", {"command": "wc -l < log"}),
    ]
    if len(answers) < len(plan):
        return {"role": "assistant", "tool_calls": [plan[len(answers)]]}
    return {"role": "assistant", "content": f"The mean is {answers[2].split()[0]}. The log has {answers[3].split()[0]} line."}


async def main(conversation, limit):
    messages = [{"role": "user", "content": "What is the mean of the numbers?"}]
    async with AsyncToolcall() as tc:
        # The same key finds the same session, so an agent that starts again finds its files.
        session = await tc.session(key=conversation)
        executor = ToolExecutor(session, conversation=conversation)
        while "tool_calls" in (message := model(messages)):
            messages.append(message)
            for answer in await executor.execute_all(message["tool_calls"]):
                messages.append({"role": "tool", "tool_call_id": answer.id, "content": answer.text})
                print(f"{answer.id}: {answer.text.splitlines()[0]}")
            if sum(m["role"] == "tool" for m in messages) == limit:
                return
        print(message["content"])
        await session.end()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else None))
