// What the reader of a call can do now: in the words of the documentation, and as commands to copy.
import {copied, element, fields, isNew, link} from './dom.js';
import {nextSteps} from './command.js';
import {policyOf} from './policy.js';
import {allowed} from './allowed.js';

// read holds the page's own files. They are part of it and need no token.
const read = {};

// ownFile reads one of them, once.
async function ownFile(path) {
  read[path] ??= fetch(path, {credentials: 'omit'}).then((response) => response.json());
  try {
    return await read[path];
  } catch (error) {
    delete read[path];
    throw error;
  }
}

function ofReason(all, reason) { return Object.hasOwn(all, reason ?? '') ? all[reason] : null; }

// prose is a text of the documentation, whose code is marked as there.
function prose(text) {
  return element('span', '', ...(text[0].toUpperCase() + text.slice(1)).split('`').map((part, i) => (i % 2 ? element('code', '', part) : part)));
}

export function showAdvice(call, into, signal) {
  const status = call.status ?? {};
  if (!isNew(into, call.metadata.uid, status.phase, status.reason, status.retrySafe)) return;
  const facts = fields([]);
  into.replaceChildren(element('h2', '', 'What now?'), facts);
  if (status.reason === 'AwaitingApproval') into.append(element('p', '', link('Decide about it here', 'approvals', call.metadata.namespace, call.metadata.name)));
  for (const {says, command} of nextSteps(call)) into.append(element('p', 'says', says, ':'), copied(command));
  explain(call, facts, signal).catch(() => {}); // The reason and the commands are there without it.
}

async function explain(call, facts, signal) {
  const {phase, reason} = call.status ?? {};
  if (phase === 'Succeeded' || phase === 'Running' || !reason) return;
  const page = ofReason(await ownFile('/reasons.json'), reason);
  const rule = phase === 'Denied' ? ofReason(await ownFile('/denials.json'), reason) : null;
  facts.append(...fields([
    ['You can', rule?.requester], ['The policy\'s owner can', rule?.owner], ['The rule', rule?.field],
    ['What it means', page && prose(page.symptom)], ['What to do', page && !rule ? prose(page.fix) : ''],
    ['More', page && `docs/troubleshooting.md, ${reason}`],
  ]).children);
  if (phase !== 'Denied') return;
  const listed = allowed(reason, (await policyOf(call, signal))?.policy?.spec);
  if (listed) facts.prepend(...fields([[`Allowed ${listed.what}`, listed.values]]).children);
}
