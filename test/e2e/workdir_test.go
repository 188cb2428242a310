package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestWorkingDirectory(t *testing.T) {
	everyWay(t, testWorkingDirectory)
}

func testWorkingDirectory(t *testing.T, w way) {
	sp := w.newSpace(t)
	sp.newEnvironment(t, "etc", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.AllowedPaths = []string{"/etc/ssl"} })
	sp.newEnvironment(t, "usr", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.AllowedPaths, e.Spec.WorkingDir = []string{"/usr"}, "/usr/lib"
	})
	for name, test := range map[string]struct {
		env, dir string
		want     outcome
		message  string
	}{
		"is the image's when nothing says otherwise":    {"", "", succeeded("/workspace\n"), ""},
		"is the environment's when the call names none": {"usr", "", succeeded("/usr/lib\n"), ""},
		"is the call's before the environment's":        {"usr", "/usr/bin", succeeded("/usr/bin\n"), ""},
		"may be another allowed one":                    {"", "/tmp", succeeded("/tmp\n"), ""},
		"is joined with the image's when relative":      {"", ".", succeeded("/workspace\n"), ""},
		"is resolved: the link is left behind":          {"usr", "/bin", succeeded("/usr/bin\n"), ""},
		"lies in an allowed path below":                 {"etc", "/etc/ssl/certs", succeeded("/etc/ssl/certs\n"), ""},
		"does not exist":                                {"", "/workspace/none", neverRan(v1alpha1.ReasonWorkingDirNotFound), `"/workspace/none": no such file or directory`},
		"relative, does not exist":                      {"", "none/at/all", neverRan(v1alpha1.ReasonWorkingDirNotFound), `"/workspace/none/at/all"`},
		"is a file":                                     {"etc", "/etc/ssl/openssl.cnf", neverRan(v1alpha1.ReasonWorkingDirNotFound), "not a directory"},
		"lies outside the defaults":                     {"", "/usr", neverRan(v1alpha1.ReasonWorkingDirNotAllowed), `"/usr" is outside`},
		"lies outside the environment's":                {"etc", "/workspace", neverRan(v1alpha1.ReasonWorkingDirNotAllowed), `choose one in "/etc/ssl"`},
		"leads outside by dots":                         {"", "../etc", neverRan(v1alpha1.ReasonWorkingDirNotAllowed), `"/etc"`},
		"leads outside by a link":                       {"", "/proc/self/root/usr", neverRan(v1alpha1.ReasonWorkingDirNotAllowed), "is outside"},
		"is no neighbour with the same beginning":       {"etc", "/etc/ssl2", neverRan(v1alpha1.ReasonWorkingDirNotFound), ""},
		"the parent of an allowed path isn't allowed":   {"etc", "/etc", neverRan(v1alpha1.ReasonWorkingDirNotAllowed), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := structured("pwd", "-P")
			if test.env != "" {
				spec = in(test.env, spec)
			}
			spec.WorkingDir = test.dir
			call := sp.run(t, spec)
			expect(t, call, test.want)
			expectMessage(t, call, test.message)
			if ran := test.want.Exit != nil; ran && call.Status.Environment.WorkingDir+"\n" != test.want.Stdout {
				t.Errorf("status.environment.workingDir is %q", call.Status.Environment.WorkingDir)
			}
		})
	}
}

// A link that somebody put into a shared volume doesn't lead out of the allowed paths.
func TestWorkingDirectoryLinkInAVolumeLeadsOutside(t *testing.T) {
	sessionFirst(t, testWorkingDirectoryLinkInAVolumeLeadsOutside, wayCold, wayWarm, wayImage)
}

func testWorkingDirectoryLinkInAVolumeLeadsOutside(t *testing.T, w way) {
	sp := w.newSpace(t)
	links := &corev1.ConfigMap{Data: map[string]string{"file": "content"}}
	links.Namespace, links.Name = sp.namespace, "links"
	must(t, sp.client.Create(t.Context(), links))
	// A ConfigMap volume holds links of its own: ..data leads to a folder with a time in its name.
	sp.newEnvironment(t, "linked", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.AllowedPaths = []string{"/data/..data"}
		e.Spec.Volumes = []corev1.Volume{{Name: "links", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "links"},
		}}}}
		e.Spec.VolumeMounts = []corev1.VolumeMount{{Name: "links", MountPath: "/data"}}
	})
	for name, test := range map[string]struct {
		dir  string
		want outcome
	}{
		"the allowed path is resolved as well": {"/data/..data", succeeded("content")},
		"its parent isn't allowed":             {"/data", neverRan(v1alpha1.ReasonWorkingDirNotAllowed)},
		"a link to a file is no directory":     {"/data/file", neverRan(v1alpha1.ReasonWorkingDirNotFound)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := in("linked", structured("cat", "file"))
			spec.WorkingDir = test.dir
			expect(t, sp.run(t, spec), test.want)
		})
	}
}
