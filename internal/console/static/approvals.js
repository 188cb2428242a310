// The view of approvals.
import {element} from './dom.js';

export async function showApprovals(namespace, object, into) {
  into.append(element('p', 'empty', 'Nothing is here yet.'));
}
