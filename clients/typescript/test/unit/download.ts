// A program that downloads a file, and says as JSON what came of it. Its test limits how much it may write.
//
// usage: node download.js SERVER LOCAL

import { Toolcall, type ToolcallError } from "../../src/index.js";
import { configFor } from "./server.js";

const [server = "", local = ""] = process.argv.slice(2);
const tc = new Toolcall({ namespace: "agents", kubeConfig: configFor(server), patience: 2 });
const session = await tc.connect("desk");
const done = await session.files.download("/data", local).catch((error: ToolcallError) => ({ reason: error.reason }));
console.log(JSON.stringify(done));
tc.close();
