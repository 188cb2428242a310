package initialize

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
)

// manager is who applies the objects, and marks those that init wrote, by v1alpha1.LabelManagedBy.
const manager = "kubectl-toolcall-init"

// userRole lets its holders create calls and sessions.
const userRole = "toolcall-user"

func (p *plan) account() string { return "system:serviceaccount:" + p.namespace + ":" + p.agent }

func (p *plan) clusterObject(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: manager}}
}

func (p *plan) object(name string) metav1.ObjectMeta {
	meta := p.clusterObject(name)
	meta.Namespace = p.namespace
	return meta
}

// objects are all that the plan needs, in an order in which each finds what it names.
func (p *plan) objects() (list []*unstructured.Unstructured) {
	for _, typed := range []any{
		p.namespaceObject(), p.policy, p.serviceAccount(), p.toolsRole(),
		p.binding(p.agent+"-tools", "Role", p.agent+"-tools"), p.binding(p.agent+"-calls", "ClusterRole", userRole), p.environment(),
	} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		cli.Must(err)
		// What only the API server writes.
		delete(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		list = append(list, &unstructured.Unstructured{Object: content})
	}
	return list
}

// namespaceObject holds its pods to the restricted Pod Security Standard, which those of calls meet.
func (p *plan) namespaceObject() *corev1.Namespace {
	n := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: p.clusterObject(p.namespace)}
	n.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	return n
}

func (p *plan) serviceAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: p.object(p.agent)}
}

// toolsRole grants the use of the plan's tools, and of nothing else.
func (p *plan) toolsRole() *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: p.object(p.agent + "-tools"),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"tools"}, ResourceNames: p.tools.names(), Verbs: []string{"use"},
		}},
	}
}

func (p *plan) binding(name, kind, role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: p.object(name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: p.namespace, Name: p.agent}},
	}
}

// environment bounds what calls take of the cluster. The agent's first session and calls fit into a namespace without a quota.
func (p *plan) environment() *v1alpha1.ExecutionEnvironment {
	e := &v1alpha1.ExecutionEnvironment{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionEnvironment"},
		ObjectMeta: p.object(p.agent),
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: p.image, ImagePullPolicy: corev1.PullIfNotPresent, WorkingDir: workspace,
			PolicyRef:          &v1alpha1.PolicyReference{Name: p.policyName()},
			MaxConcurrentCalls: ptr.To(int32(10)),
			Sessions:           &v1alpha1.SessionLimits{Max: ptr.To(int32(10)), MaxPerCaller: ptr.To(int32(5))},
			Resources: corev1.ResourceRequirements{
				Requests: resources("50m", "64Mi", "64Mi"), Limits: resources("1", "1Gi", "2Gi"),
			},
		},
	}
	if p.isDefault {
		e.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}
	}
	return e
}

func resources(cpu, memory, storage string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceEphemeralStorage: resource.MustParse(storage),
	}
}

// print writes the objects as YAML documents.
func (o *options) print(p *plan) error {
	printer := &printers.YAMLPrinter{}
	for _, object := range p.objects() {
		if err := printer.PrintObj(object, o.Out); err != nil {
			return fmt.Errorf("print %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	o.Note(false, "Nothing was written. To apply the objects, pipe them into kubectl apply -f -; without --dry-run, init also writes the agent's kubeconfig.")
	return nil
}
