// The view of sessions.
import {showSessionList} from './list.js';

export function showSessions(namespace, _, into, signal) { return showSessionList(namespace, into, signal); }
