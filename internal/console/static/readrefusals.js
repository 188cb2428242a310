// Reads the calls that were denied, and what says which policy denied them.
import {listPath} from './api.js';
import {pages, rows} from './readlist.js';
import {policiesOf} from './refusals.js';

// detailed are the reasons of which the status says which rule or requirement it was: those calls are read whole.
const detailed = ['DeniedByRule', 'GuardError', 'ApprovalDenied', 'ApprovalExpired'];

// What is read at most: rows, and whole calls, each of which may be large.
const maxRows = 2000, maxWhole = 400, perPage = 500, wholePerPage = 40;

async function readRows(path, signal) {
  const all = [];
  let complete = true;
  for await (const {answer, isLast} of pages(path, {limit: perPage}, maxRows, signal)) {
    all.push(...rows(answer));
    complete = isLast;
  }
  return {all, complete};
}

// readWhole reads the calls of a reason. Of each, only what is counted is kept.
async function readWhole(namespace, reason, signal) {
  const all = [];
  let complete = true;
  for await (const {answer, isLast} of pages(listPath('toolcalls', namespace), {fieldSelector: `status.reason=${reason}`, limit: wholePerPage}, maxWhole, signal)) {
    for (const {metadata, status = {}} of answer.items ?? []) {
      all.push({
        namespace: metadata.namespace, environment: status.environment?.name ?? '', reason, message: status.message,
        causes: reason.startsWith('Approval') ? status.approval?.causes ?? [] : [],
      });
    }
    complete = isLast;
  }
  return {all, complete};
}

// readRefusals are the denied calls of a namespace, or of all, with the policies of environments.
export async function readRefusals(namespace, signal) {
  const [calls, environments, policies] = await Promise.all([
    readRows(listPath('toolcalls', namespace), signal), readRows(listPath('executionenvironments', namespace), signal), readRows(listPath('executionpolicies', ''), signal),
  ]);
  const denied = calls.all.filter((row) => row.Phase === 'Denied');
  const parts = [{
    all: denied.filter((row) => !detailed.includes(row.Reason)).map((row) => ({namespace: row.metadata.namespace, environment: row.Environment ?? '', reason: row.Reason})),
    complete: calls.complete && environments.complete && policies.complete,
  }];
  for (const reason of detailed) {
    if (denied.some((row) => row.Reason === reason)) parts.push(await readWhole(namespace, reason, signal));
  }
  const complete = parts.every((part) => part.complete);
  return {
    calls: parts.flatMap((part) => part.all),
    policies: policiesOf(
      environments.all.map((row) => ({namespace: row.metadata.namespace, name: row.metadata.name, policy: row.Policy})),
      policies.all.map((row) => ({name: row.metadata.name, isDefault: String(row.Default) === 'true'}))),
    note: `Refused calls are those ${namespace ? `in ${namespace}` : 'in all namespaces'} that were there when this page was opened${complete ? '' : ', as far as they were read: there are more'}. ` +
      'They count for the policy that their environment has now.',
  };
}
