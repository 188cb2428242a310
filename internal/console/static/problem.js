// Shows errors, with what the user can do.
import {button, element} from './dom.js';
import {shorten} from './text.js';

let onUnauthorized = () => {};

// whenUnauthorized says what happens when a token isn't valid any more.
export function whenUnauthorized(act) { onUnauthorized = act; }

export function problem(error) {
  if (error.code === 401) queueMicrotask(() => onUnauthorized(error));
  const shown = element('span', 'error', shorten(error.message, 2000));
  if (error.hint) shown.append(' ', element('span', 'note', error.hint));
  return shown;
}

// untilRetried shows an error that doesn't pass by itself, until the user wants another try.
export function untilRetried(error, into) {
  return new Promise((resolve) => into.replaceChildren(problem(error), ' ', button('Try again', resolve)));
}
