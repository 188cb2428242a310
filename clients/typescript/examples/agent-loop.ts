import { CallEnded, type Toolcall } from "@toolcall/client";
import type { Message, Model } from "./model.js";

export async function work(task: string, model: Model, tc: Toolcall): Promise<string> {
  await using session = await tc.session("tools");
  const messages: Message[] = [{ role: "user", content: task }];
  for (;;) {
    const answer = await model(messages);
    messages.push(answer);
    if (!answer.commands) {
      return answer.content;
    }
    for (const { id, line } of answer.commands) {
      messages.push({ role: "tool", id, content: await run(line) });
    }
  }

  async function run(line: string): Promise<string> {
    try {
      return (await session.commands.run(line, { timeout: 60 })).text;
    } catch (error) {
      if (!(error instanceof CallEnded)) throw error;
      return error.result.text; // It was denied, or over its time: the text says so, after the output so far.
    }
  }
}
