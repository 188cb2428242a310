// Package rbac holds the generated roles of the operator, so that the operator can tell at its start which right it lacks.
package rbac

import _ "embed"

// Roles is role.yaml: the roles toolcall-operator in the whole cluster and in the operator's namespace, and
// NamespacedRole.
//
//go:embed role.yaml
var Roles []byte

// NamespacedRole has the rights on what is in namespaces: bound in the whole cluster, or a Role in each namespace that the
// operator works in.
const NamespacedRole = "toolcall-operator-namespaced"
