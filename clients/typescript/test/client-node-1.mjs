// Has @kubernetes/client-node mean its version 1, which runs on Node.js 20: node --import ./test/client-node-1.mjs
import { register } from "node:module";

register(
  "data:text/javascript," +
    encodeURIComponent(`
  export const resolve = (specifier, context, next) =>
    next(specifier === "@kubernetes/client-node" ? "client-node-1" : specifier, context);
`),
);
