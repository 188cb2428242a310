package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/testing/apiservertest"
)

// api is a client of the API server of all tests, nil if there is none.
var api client.Client

const apiNamespace = "agents"

var suite = &apiservertest.Suite{
	Options: apiservertest.Options{CRDs: true},
	Setup: func(s *apiservertest.Server) (err error) {
		if api, err = s.Client(); err != nil {
			return err
		}
		return api.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: apiNamespace}})
	},
}

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// expectAccepted sends each manifest to the API server, which validates it strictly and stores nothing.
func expectAccepted(t *testing.T, manifests []byte) {
	t.Helper()
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		strict := &client.CreateOptions{DryRun: []string{metav1.DryRunAll}, Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}}
		if err := api.Create(t.Context(), object, strict); err != nil {
			t.Errorf("the API server rejects %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

func TestTheAPIServerAcceptsTheGoldenManifests(t *testing.T) {
	t.Parallel()
	suite.Need(t)
	sources, _ := filepath.Glob("testdata/*.toml")
	for _, source := range sources {
		data, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		result, _ := Convert(data, Options{Namespace: apiNamespace, Image: "registry.example/tools:1"})
		expectAccepted(t, result.Manifests)
	}
}

// The API server accepts every conversion without an error: also of values at the bounds, and of odd ones.
func TestTheAPIServerAcceptsWhateverIsConverted(t *testing.T) {
	t.Parallel()
	suite.Need(t)
	random := rand.New(rand.NewPCG(3, 14))
	converted := 0
	for range 400 {
		source := randomDocument(random)
		result, err := Convert([]byte(source), Options{Namespace: apiNamespace, Image: pick(random, "i", strings.Repeat("a", 1024), "registry.example:5000/a/b@sha256:00")})
		if err != nil {
			continue
		}
		converted++
		expectAccepted(t, result.Manifests)
		if t.Failed() {
			t.Fatalf("the document is\n%.4000s", source)
		}
	}
	if converted < 200 {
		t.Errorf("only %d documents were converted", converted)
	}
}

func pick(random *rand.Rand, values ...string) string { return values[random.IntN(len(values))] }

// maybe returns a line of a document in most cases.
func maybe(random *rand.Rand, key string, values ...string) string {
	if random.IntN(4) == 0 {
		return ""
	}
	return key + " = " + pick(random, values...) + "\n"
}

// randomDocument has valid, odd and invalid values in all places that are converted.
func randomDocument(random *rand.Rand) string {
	var b strings.Builder
	b.WriteString(maybe(random, keyDefaultEnv, "'dev'", "'My Env'", "'d-1'"))
	b.WriteString("[tools]\n")
	b.WriteString(maybe(random, keyShellMode, "true", "false"))
	b.WriteString(maybe(random, keyCommands, "[]", "['ls', 'git']", "['*']", "['/bin/sh', 'a b', '']", "["+numbered("'c%d',", 1024)+"]", "['"+strings.Repeat("x", 256)+"']", "['É', 'g++', '-x', '.hidden']"))
	b.WriteString(maybe(random, keyDefaultTimeout, "-1", "0", "1", "30", "600", "601", "604800", "9999999999"))
	b.WriteString(maybe(random, keyMaxTimeout, "-1", "0", "1", "119", "120", "600", "604800", "604801"))
	b.WriteString(maybe(random, keyBlocklist, "[]", "['*']", "['A', 'CORP_*']", "['"+strings.Repeat("B", 256)+"']", "["+numbered("'P%d',", 256)+"]"))
	for _, name := range []string{"dev", "My Env", "d-1"} {
		fmt.Fprintf(&b, "[[environments]]\nname = '%s'\n", name)
		b.WriteString(maybe(random, keyCwd, "''", "'/workspace'", "'/srv/x/'", "'src'", "'/'", "'~/x'", "'/a/../b'", "'/"+strings.Repeat("x", 4095)+"'", `"/\u001b[31m"`))
		b.WriteString("[environments.env]\n")
		b.WriteString(maybe(random, "A", "''", "'x'", "1", "true", "1.5", `"\u007f\u0085\ufeff"`, "'"+strings.Repeat("x", 60_000)+"'"))
		b.WriteString(maybe(random, "AWS_SECRET", "'x'", `"a\nb"`))
		b.WriteString(maybe(random, strings.Repeat("V", 256), "'x'"))
		b.WriteString(maybe(random, "_", "'x'"))
	}
	return b.String()
}
