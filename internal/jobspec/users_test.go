package jobspec_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/internal/jobspec"
)

func TestARangeOfUsers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]jobspec.UserRange{
		"":                      {},
		"1000000000-1999999999": {First: 1_000_000_000, Last: 1_999_999_999},
		"1-1000000":             {First: 1, Last: 1_000_000},
		"2146483648-2147483647": {First: 2_146_483_648, Last: 2_147_483_647},
	} {
		if got, err := jobspec.ParseUserRange(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"1000", "1-", "-1000000", "a-b", "0-1000000", "-5-1000000", "1-999999", "2000000-1", "1000000000-2147483648", "1-99999999999999999999"} {
		if got, err := jobspec.ParseUserRange(text); err == nil || !strings.Contains(err.Error(), "such as 1000000000-1999999999") || got != (jobspec.UserRange{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestNamespacesHaveUsersOfTheirOwn(t *testing.T) {
	t.Parallel()
	users := jobspec.UserRange{First: 1_000_000_000, Last: 1_999_999_999}
	namespaceOf := map[int64]string{}
	for i := range 1000 {
		namespace := fmt.Sprint("team-", i)
		user := users.UserOf(namespace)
		if user < users.First || user > users.Last || user != users.UserOf(namespace) {
			t.Errorf("%s has the user %d", namespace, user)
		}
		if other := namespaceOf[user]; other != "" {
			t.Errorf("%s and %s have the user %d", namespace, other, user)
		}
		namespaceOf[user] = namespace
	}
}

// Pods get their namespace's user and group, but for what the environment names.
func TestAPodRunsAsItsNamespacesUser(t *testing.T) {
	t.Parallel()
	users := jobspec.UserRange{First: 1_000_000_000, Last: 1_999_999_999}
	own := users.UserOf("ns")
	for name, c := range map[string]struct {
		users              jobspec.UserRange
		hostUsers          *bool
		given              *corev1.PodSecurityContext
		user, group, files int64
	}{
		"no range":              {user: 1000, group: 1000, files: 1000},
		"a range":               {users: users, user: own, group: own, files: own},
		"a user namespace":      {users: users, hostUsers: ptr.To(false), user: 1000, group: 1000, files: 1000},
		"an environment's user": {users: users, given: &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(7))}, user: 7, group: own, files: own},
	} {
		job := build(t, func(in *jobspec.Input) {
			in.Runtime.Users = c.users
			in.Decision.In.Spec.PodSecurityContext, in.Decision.In.Spec.HostUsers = c.given, c.hostUsers
		})
		sc := job.Spec.Template.Spec.SecurityContext
		if *sc.RunAsUser != c.user || *sc.RunAsGroup != c.group || *sc.FSGroup != c.files {
			t.Errorf("%s: user %d, group %d, files %d", name, *sc.RunAsUser, *sc.RunAsGroup, *sc.FSGroup)
		}
	}
}
