// The view of policies.
import {element} from './dom.js';

export async function showPolicies(namespace, object, into) {
  into.append(element('p', 'empty', 'Nothing is here yet.'));
}
