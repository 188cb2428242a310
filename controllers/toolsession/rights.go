// Package toolsession keeps sessions: their pods, their workspace claims, and their end.
package toolsession

// What it reads of environments, skills, policies, Jobs and pods, and what it asks about requesters, the controller of
// calls has the rights for. patch on sessions is for the finalizer. A claim that is kept belongs to nobody, so the
// operator deletes the others itself when their session ends.
//
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolsessions,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolsessions/status,verbs=patch
// +kubebuilder:rbac:groups="",roleName=toolcall-operator-namespaced,resources=persistentvolumeclaims,verbs=get;create;delete
