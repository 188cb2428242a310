// Package console serves a page that shows tool calls and sessions, and passes the page's reads, and people's decisions about calls,
// on to the API server.
//
// Input are requests of browsers: for the page's files, which need no credentials, and below /apis for objects and output, each
// with the user's own token in the Authorization header. Output is what the API server answers to that user.
//
// # What passes
//
// GET, without a body, and only the requests that parseTarget knows: to get, list and watch calls, sessions, environments, policies,
// budgets and approvals, to read output and artifacts, and to ask who the token's user is. And one POST, parseDecision: a ToolCallApproval
// in a namespace. A request isn't filtered but made anew: from the namespace, the name, the
// parameters, each of which was checked. Of its headers only the token goes on, so no header can impersonate, upgrade or cache.
// A decision is built from the call's name and UID, the digest, Approve or Deny, and the note; the approver is who the API server says
// the token's user is. Of the answer, the status, the body and a few checked headers come back. Its type and all other headers are this package's.
//
// # Threats, and what holds against each
//
//   - A call's output, message, name or file is a page that wants to run in the reader's browser, with the reader's token. The page
//     makes its elements with createElement and textContent; Trusted Types have the browser refuse any other way. The policy of
//     every answer allows the console's own scripts alone, and no request to another host. What a call made is served as bytes to
//     be saved, in a sandbox; the page shows an image only on request, and if its first bytes are those of a PNG, JPEG, GIF or WebP.
//   - Another site makes the browser send requests. There is no cookie and nothing else that a browser sends by itself: a request
//     without the token in its header is 401, and no answer allows another origin to send one (no CORS). Requests that a browser
//     says come from another site are refused besides.
//   - Another site has the reader decide about a call. Besides the token, a decision needs the Origin of the console itself and the
//     type application/json, which no form and no link sends. A page can't be framed, so nothing can be laid over it. In the page,
//     a decision takes two steps: the call is opened, and then the summary is shown in a dialog whose button takes clicks only when
//     that summary has been visible, unchanged, for 0.7 seconds, and, to approve, has been read to its end. It names the digest of what
//     was shown: if the call would run anything else by then, the decision doesn't count.
//   - Another site has its host name resolve to the console's address (DNS rebinding). It is then an origin of its own, without
//     the token, which is in the memory of the console's page alone. It could show the console's page under its own name to get
//     a token typed into it, so requests for hosts that aren't the console's are refused.
//   - Another site frames the page, opens it, or loads its files: frame-ancestors, COOP and CORP.
//   - The token is stolen from where it is kept: it isn't. The page has it in a variable, the server in the request that it passes
//     on. Neither cookies, storage of the browser, logs nor caches see it.
//   - The server is taken over. It has no rights and no credentials: no token of its account is mounted. What the attacker gets are
//     tokens that users send afterwards, as with any proxy; docs/console.md says to use short-lived ones with few rights.
//   - Somebody asks for too much: requests, their time, their answers and the connections are bounded, in all and for one token.
//
// # Invariants
//
// Nothing is kept between requests. No request is made with any credentials but the request's own. Watches and follows end with the
// client, with the server, and after maxStream at the latest, so that a token that was withdrawn doesn't read on for long.
package console
