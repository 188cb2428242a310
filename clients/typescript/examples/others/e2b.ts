import { CommandExitError, Sandbox, TimeoutError } from "e2b";
import type { Message, Model } from "../model.js";

export async function work(task: string, model: Model): Promise<string> {
  const sandbox = await Sandbox.create("base");
  try {
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
  } finally {
    await sandbox.kill();
  }

  async function run(line: string): Promise<string> {
    try {
      const { stdout, stderr } = await sandbox.commands.run(line, { timeoutMs: 60_000 });
      return stdout + stderr;
    } catch (error) {
      if (error instanceof TimeoutError) return error.message;
      if (!(error instanceof CommandExitError)) throw error;
      return `${error.stdout}${error.stderr}\nCommand exited with code ${error.exitCode}`;
    }
  }
}
