package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/docurl"
	"toolcall.dev/operator/internal/kubeversion"
	"toolcall.dev/operator/internal/plugin/cli"
)

// What the operator needs of a cluster.
const (
	adviceInstall = "as a cluster administrator, install the operator: kubectl apply --server-side -f install.yaml of the release, or helm upgrade --install"
	adviceAdmin   = "ask a cluster administrator to run kubectl toolcall doctor"
)

// kinds are the resources that an installation has.
var kinds = []string{"executionenvironments", "executionpolicies", "skills", "toolbudgets", "toolcallapprovals", "toolcalls", "toolsessions"}

// mutating and validating are the admission policies that an installation has, each with a binding of the same name.
var (
	mutating   = []string{"toolcall-approver", "toolcall-requested-by", "toolcall-session-requested-by"}
	validating = []string{
		"toolcall-approval-identity", "toolcall-create", "toolcall-environment-size", "toolcall-identity", "toolcall-operator-account", "toolcall-operator-objects",
		"toolcall-operator-templates", "toolcall-policy-use", "toolcall-session-identity", "toolcall-session-spec", "toolcall-session-update",
		"toolcall-size", "toolcall-update",
	}
)

// readJSON reads what a path of the API server answers. An answer that is an error is returned as one of Kubernetes.
func readJSON(ctx context.Context, c *cli.Cluster, path string, into any) error {
	raw, err := c.Calls.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read /%s: %w", path, err)
	}
	return nil
}

func (d *doctor) checkCluster(context.Context) []finding {
	if d.versionErr != nil {
		return unseenFinding("read the cluster's version", adviceAdmin, d.versionErr)
	}
	if _, err := utilversion.ParseGeneric(d.version); err != nil {
		return []finding{found(stateUnknown, fmt.Sprintf("the version %q can't be read", d.version), "")}
	}
	return []finding{clusterFinding(d.version)}
}

// clusterFinding tells what a version of Kubernetes means for calls.
func clusterFinding(running string) finding {
	switch {
	case kubeversion.IsOlder(running, kubeversion.Minimum):
		return found(stateProblem, fmt.Sprintf("Kubernetes %s is older than %s", running, kubeversion.Minimum), "upgrade the cluster: "+docurl.Page("install.md#kubernetes-versions")+" says what works from which version on")
	case kubeversion.IsOlder(running, kubeversion.ImageVolumes):
		return found(stateOK, "Kubernetes "+running+": without image volumes, an init container brings the runner into each pod", "")
	}
	return found(stateOK, "Kubernetes "+running, "")
}

func (d *doctor) checkKinds(ctx context.Context) []finding {
	list := &metav1.APIResourceList{}
	err := readJSON(ctx, d.Cluster, "apis/"+v1alpha1.GroupVersion.String(), list)
	if apierrors.IsNotFound(err) {
		return problem(adviceInstall, "the cluster has no kind of %s", v1alpha1.GroupVersion)
	}
	if err != nil {
		return unseenFinding("ask for the kinds", adviceAdmin, err)
	}
	served := map[string]bool{}
	for i := range list.APIResources {
		served[list.APIResources[i].Name] = true
	}
	missing := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return served[kind] })
	if len(missing) > 0 {
		return problem(adviceInstall, "the cluster lacks %s", strings.Join(missing, ", "))
	}
	return healthy("%d kinds of %s", len(kinds), v1alpha1.GroupVersion)
}

// checkAdmission looks for each admission policy and binding, and whether those that check are enforced. Who may not list them
// learns from a dry run whether the most important ones are in force.
func (d *doctor) checkAdmission(ctx context.Context) []finding {
	var absent, missing, weak []string
	serves := true
	for _, part := range []struct {
		kind  string
		list  client.ObjectList
		names []string
	}{
		{"MutatingAdmissionPolicy", &admissionregistrationv1.MutatingAdmissionPolicyList{}, mutating},
		{"MutatingAdmissionPolicyBinding", &admissionregistrationv1.MutatingAdmissionPolicyBindingList{}, mutating},
		{"ValidatingAdmissionPolicy", &admissionregistrationv1.ValidatingAdmissionPolicyList{}, validating},
		{"ValidatingAdmissionPolicyBinding", &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}, validating},
	} {
		isStamp := strings.HasPrefix(part.kind, "Mutating")
		err := d.Client.List(ctx, part.list)
		switch {
		case apierrors.IsForbidden(err):
			return d.checkAdmissionByDryRun(ctx)
		case isStamp && apierrors.IsNotFound(err):
			serves = false
			continue
		case err != nil:
			return unseenFinding("list admission policies", adviceAdmin, err)
		}
		lacking, weakOnes := gaps(part.kind, part.list, part.names)
		if isStamp {
			absent = append(absent, lacking...)
			continue
		}
		missing, weak = append(missing, lacking...), append(weak, weakOnes...)
	}
	return admissionFindings(serves, absent, missing, weak)
}

// admissionFindings tell what follows from the policies that a cluster lacks: absent are those that fill in who creates a call,
// missing those that hold calls to the rules, and weak those that don't hold all of them. The first can be made up for.
func admissionFindings(serves bool, absent, missing, weak []string) []finding {
	var findings []finding
	if len(missing) > 0 {
		findings = problem(adviceInstall+"; without them, calls aren't held to what the documentation promises", "missing: %s", strings.Join(append(absent, missing...), ", "))
	}
	if len(weak) > 0 {
		findings = append(findings, problem(adviceInstall+", which puts them back; as they are, calls aren't held to what the documentation promises", "not enforced: %s", strings.Join(weak, ", "))...)
	}
	if len(absent) > 0 && len(missing) == 0 {
		detail := "missing: " + strings.Join(absent, ", ") + ": clients have to say who creates a call, which is checked"
		findings = append(findings, found(stateWarning, detail, adviceInstall+"; the cluster has become able to use them since"))
	}
	switch {
	case len(findings) > 0:
		return findings
	case !serves:
		return healthy("%d admission policies with their bindings; the cluster has no MutatingAdmissionPolicy, so that clients say who creates a call, which is checked", len(validating))
	}
	return healthy("%d admission policies with their bindings", len(mutating)+len(validating))
}

// gaps are those of the names that a list doesn't have, and those that aren't enforced on everything, each with why.
func gaps(kind string, list client.ObjectList, names []string) (lacking, weak []string) {
	there := map[string]client.Object{}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		there[o.(client.Object).GetName()] = o.(client.Object)
		return nil
	})
	for _, name := range names {
		if there[name] == nil {
			lacking = append(lacking, kind+" "+name)
		} else if why := access.Weakness(there[name]); why != "" {
			weak = append(weak, kind+" "+name+" ("+why+")")
		}
	}
	return lacking, weak
}

func (d *doctor) checkAdmissionByDryRun(ctx context.Context) []finding {
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, GenerateName: "doctor-"}}
	call.Spec.Shell = &v1alpha1.ShellAction{Command: "true"}
	err := d.Client.Create(ctx, call, client.DryRunAll)
	switch {
	case err != nil:
		return unseenFinding("list admission policies, nor to create calls in namespace "+d.Namespace+", which would show whether they are in force", adviceAdmin, err)
	case call.Spec.RequestedBy == nil:
		return problem(adviceInstall, "who creates a call isn't recorded: neither the MutatingAdmissionPolicy toolcall-requested-by nor the ValidatingAdmissionPolicy toolcall-identity is in force")
	default:
		return healthy("who creates a call is recorded; the other admission policies can't be seen, as you have no permission to list them")
	}
}

func (d *doctor) checkOutputAPI(ctx context.Context) []finding {
	const advice = "look at the operator's pods and at the Service that the APIService " + outputService + " names; without the API, run, logs and cp don't work, and no namespace can be deleted"
	if apierrors.IsNotFound(d.serviceErr) {
		return problem(adviceInstall, "there is no APIService %s: output, files and input of calls aren't served", outputService)
	}
	if why := unavailable(d.service); why != "" {
		return problem(advice, "the APIService is not available: %s", why)
	}
	if _, err := get(ctx, d.Cluster, "apis/"+outputGroup); err != nil {
		return problem(advice, "the API %s doesn't answer: %v", outputGroup, err)
	}
	return healthy("%s answers", outputGroup)
}

// unavailable is why the API server can't pass requests on, empty if it can, or if that can't be seen.
func unavailable(service *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(service.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "Available" && condition["status"] != "True" {
			return fmt.Sprintf("%v: %v", condition["reason"], condition["message"])
		}
	}
	return ""
}
