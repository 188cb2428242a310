// The quick start of docs/clients-typescript.md: one call, and a session with files and a server.
//
// usage: node quick-start.js NAMESPACE ENVIRONMENT

import { Denied, Toolcall } from "@toolcall/client";

const [namespace = "agents", environment = "tools"] = process.argv.slice(2);
const tc = new Toolcall({ namespace });

// One call, in a pod of its own.
const first = await tc.run('echo "hello from $(pwd)"', { environment });
console.log(first.exitCode, first.stdout.trim());

// A session: a workspace that lasts for many calls. It ends with the block.
{
  await using session = await tc.session(environment);
  await session.files.write("notes.txt", "pear\nfig\n");

  const sorted = await session.commands.run("sort notes.txt", { timeout: 60, onStdout: (text) => process.stdout.write(text) });
  console.log(sorted.phase, sorted.reason);

  // With a key a call runs at most once: asking again gives its result.
  for (const _ of [1, 2]) {
    const counted = await session.commands.run("echo ran >> log; wc -l < log", { key: `count-${session.name}` });
    console.log("times:", counted.stdout.trim());
  }

  const cat = await session.commands.run({ program: "cat" }, { background: true });
  await cat.write("to the server\n");
  console.log("server:", (await cat.read({ waitFor: 10 })).text.trim());
  await cat.cancel();

  console.log((await session.files.list()).map((entry) => entry.path).join(" "));

  try {
    await session.commands.run("curl example.org");
  } catch (error) {
    if (!(error instanceof Denied)) {
      throw error;
    }
    console.log("denied:", error.reason, error.retrySafe);
  }
}
