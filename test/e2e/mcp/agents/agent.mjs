// An agent of another project's framework, LangGraph with LangChain's MCP adapters, that does a task with the tools of an MCP server. Its
// model is a script: what a model would decide stands in steps, everything else is the framework's.
//
// MCP_TEST says how to start the server: {"command": "...", "args": [...], "env": {...}}. It writes the messages of the conversation as a
// line of JSON on standard output.
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage } from "@langchain/core/messages";
import { createReactAgent } from "@langchain/langgraph/prebuilt";
import { MultiServerMCPClient } from "@langchain/mcp-adapters";

const program = "def mean(values):\n    return sum(values) / len(value)\n\nprint(mean([1, 2, 6]))\n";

// What the model asks for in each turn. It reads the name of its session in the answer of start_session.
const steps = [
  () => ["start_session", {}],
  (in_) => ["write_file", { ...in_, path: "mean.py", content: program }],
  (in_) => ["run_command", { ...in_, command: "python3 mean.py" }],
  (in_) => ["edit_file", { ...in_, path: "mean.py", old_string: "len(values)", new_string: "x" }],
  (in_) => ["edit_file", { ...in_, path: "mean.py", old_string: "len(value)", new_string: "len(values)" }],
  (in_) => ["run_command", { ...in_, command: "python3 mean.py", timeout_seconds: 30 }],
  (in_) => ["list_files", { ...in_ }],
  (in_) => ["end_session", { ...in_ }],
];

const textOf = (content) => (typeof content === "string" ? content : content.map((part) => part.text ?? "").join(""));

class ScriptedModel extends BaseChatModel {
  _llmType() {
    return "script";
  }

  bindTools(tools) {
    this.tools = new Set(tools.map((tool) => tool.name));
    return this;
  }

  async _generate(messages) {
    const answers = messages.filter((message) => message.getType() === "tool");
    const session = answers.map((answer) => /Session (\S+) is/.exec(textOf(answer.content))?.[1]).find(Boolean);
    const step = steps[answers.length];
    let message = new AIMessage("done");
    if (step) {
      const [name, args] = step({ session });
      if (!this.tools.has(name)) {
        throw new Error(`the framework doesn't offer ${name}`);
      }
      message = new AIMessage({ content: "", tool_calls: [{ id: `step-${answers.length}`, name, args, type: "tool_call" }] });
    }
    return { generations: [{ text: textOf(message.content), message }] };
  }
}

const server = JSON.parse(process.env.MCP_TEST);
const client = new MultiServerMCPClient({ mcpServers: { toolcall: { transport: "stdio", ...server } } });
try {
  const agent = createReactAgent({ llm: new ScriptedModel({}), tools: await client.getTools() });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: "Correct mean.py" }] }, { recursionLimit: 50 });
  const answers = messages.filter((message) => message.getType() === "tool");
  console.log(JSON.stringify({ answers: answers.map((answer) => ({ tool: answer.name, text: textOf(answer.content) })), last: textOf(messages.at(-1).content) }));
} finally {
  await client.close();
}
