// Finds the call that a user approved last.
import {listPath, objectPath, readObject} from './api.js';
import {pages, rows} from './readlist.js';
import {isAlike, isCounted, selectorOf} from './summary.js';

// maxDecisions bounds the decisions that are read.
const maxDecisions = 2000;

// maxCompared is how many of the calls that a user approved are looked at, the newest first.
export const maxCompared = 20;

// approvals are the user's decisions that let a call start, the newest first.
async function approvals(user, namespace, signal) {
  const found = [];
  const selector = {fieldSelector: selectorOf('spec.approver.username', user), limit: 500};
  for await (const {answer} of pages(listPath('toolcallapprovals', namespace), selector, maxDecisions, signal)) {
    for (const row of rows(answer)) {
      if (row.Decision === 'Approve' && row.Phase === 'Accepted') found.push({call: row.Call, uid: row.metadata.uid, at: row.metadata.creationTimestamp});
    }
  }
  return found.sort((a, b) => b.at.localeCompare(a.at));
}

// lastApproved is the call of the same session, or of the same requester without a session, that a user approved last; null when
// there is none any more among the last that the user approved at all.
export async function lastApproved(user, call, signal) {
  const {namespace, uid} = call.metadata;
  const others = (await approvals(user, namespace, signal)).filter(({call: name}) => name !== call.metadata.name);
  for (const {call: name, uid: decision} of others.slice(0, maxCompared)) {
    let other;
    try {
      other = await readObject(objectPath('toolcalls', namespace, name), {}, signal);
    } catch (error) {
      if (error.code === 404) continue;
      throw error;
    }
    if (other.metadata.uid !== uid && isCounted(other, decision) && isAlike(other, call)) return other;
  }
  return null;
}
