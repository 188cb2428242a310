// The view of use.
import {element} from './dom.js';

export async function showUse(namespace, object, into) {
  into.append(element('p', 'empty', 'Nothing is here yet.'));
}
