// Package namespaces tests an installation for some namespaces against an API server with RBAC: the operator, as its own
// account with the rights of config/namespaced, does all its work there and asks for nothing elsewhere.
package namespaces
