import { ModalClient } from "modal";
import type { Message, Model } from "../model.js";

export async function work(task: string, model: Model): Promise<string> {
  const modal = new ModalClient();
  const app = await modal.apps.fromName("agent", { createIfMissing: true });
  const sandbox = await modal.sandboxes.create(app, modal.images.fromRegistry("debian:13"));
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
    await sandbox.terminate();
  }

  async function run(line: string): Promise<string> {
    const process = await sandbox.exec(["bash", "-c", line], { timeoutMs: 60_000 });
    const [stdout, stderr, code] = await Promise.all([process.stdout.readText(), process.stderr.readText(), process.wait()]);
    return stdout + stderr + (code === 0 ? "" : `\nCommand exited with code ${code}`);
  }
}
