// Package subresources serves the aggregated API: the group subresources.toolcall.dev, which the cluster's API server passes on
// to the operator. It has what doesn't fit into objects: the output of calls, whole, by range, and while they run, the files of sessions,
// and reviews of calls, which are answered and stored nowhere.
//
// The cluster's API server authenticates, authorizes and audits each request before it passes it on, and nobody else gets in: a
// connection needs the API server's own client certificate, or another replica's. This server authorizes once more, and
// asks what RBAC on the group can't say: whether the user may get the call, and whether a session's output is the
// user's to read.
//
// Each replica serves discovery and all that is kept, whatever its lease and caches: an API group that doesn't answer keeps
// every namespace of the cluster from being deleted. What the leader alone has, the others get from it.
package subresources
