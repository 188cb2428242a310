package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const types = `package v1

// Colour of a lamp.
type Colour string

// Colours of a Lamp.
const (
	// Red is not green.
	Red Colour = "Red"
)

// Reasons of a Lamp that is off.
const (
	// ReasonBroken says that it is broken.
	ReasonBroken = "Broken"
	// ReasonNoBulb says that spec.bulbs is empty.
	ReasonNoBulb = "NoBulb"
)

// Reasons of a LampPost.
const (
	ReasonOther = "Other"
)

type LampSpec struct {
	// colour to shine in.
	Colour Colour ` + "`json:\"colour\"`" + `
	// bulbs in it.
	Bulbs []Bulb ` + "`json:\"bulbs,omitempty\"`" + `
}

type Bulb struct {
	// watts it takes.
	Watts *int32 ` + "`json:\"watts,omitempty\"`" + `
}

type Lamp struct {
	Spec LampSpec ` + "`json:\"spec\"`" + `
}
`

const crd = `
spec:
  group: example.org
  scope: Cluster
  names: {kind: Lamp, plural: lamps, shortNames: [l], categories: [all]}
  versions:
  - name: v1
    additionalPrinterColumns: [{name: Age, jsonPath: .metadata.creationTimestamp}]
    schema:
      openAPIV3Schema:
        description: Lamp shines.
        properties:
          spec:
            description: spec says how it shines.
            required: [colour]
            x-kubernetes-validations:
            - {rule: "self.colour != ''", message: choose a colour}
            properties:
              colour: {description: colour to shine in., type: string, enum: [Red]}
              bulbs:
                description: bulbs in it.
                type: array
                maxItems: 3
                items:
                  type: object
                  properties:
                    watts: {description: watts it takes., type: integer, format: int32, minimum: 1, maximum: 9, default: 5}
`

// write lays out types and a definition, and gives what a run made of them.
func write(t *testing.T, types, crd string) (string, error) {
	t.Helper()
	o := options{types: t.TempDir(), crds: t.TempDir(), out: t.TempDir()}
	for path, content := range map[string]string{
		filepath.Join(o.types, "types.go"):               types,
		filepath.Join(o.types, "zz_generated.go"):        "not Go at all",
		filepath.Join(o.crds, "toolcall.dev_lamps.yaml"): crd,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(o); err != nil {
		return "", err
	}
	raw, err := os.ReadFile(filepath.Join(o.out, "lamp.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw), nil
}

func TestPageHasWhatTheAPIServerEnforces(t *testing.T) {
	t.Parallel()
	text, err := write(t, types, crd)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Lamp\n\nLamp shines.\n", "| scope | cluster |", "| short name | `l` |",
		"Says how it shines.\n", "- rule: “choose a colour” (`self.colour != ''`)\n",
		"### spec.colour\n\ncolour to shine in.\n\n- string; **required**; one of `Red`\n\n| value | meaning |\n|---|---|\n| `Red` | Not green. |\n",
		"### spec.bulbs\n\nbulbs in it.\n\n- list of object; optional; at most 3 items\n",
		"### spec.bulbs[].watts\n\nwatts it takes.\n\n- integer (int32); optional; default `5`; at least 1; at most 9\n",
		"## Reasons of a Lamp that is off\n\n| reason | meaning |\n|---|---|\n| `Broken` | It is broken. |\n| `NoBulb` | spec.bulbs is empty. |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "LampPost") {
		t.Error("the page has the reasons of another kind")
	}
	if strings.Index(text, "### spec.colour") > strings.Index(text, "### spec.bulbs") {
		t.Error("the fields aren't in the order of the Go type")
	}
}

func TestWhatIsOutOfStepIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ types, crd, want string }{
		"a field that the schema lacks":  {strings.Replace(types, "// bulbs in it.", "Size string `json:\"size\"`", 1), crd, `a field "size" that the schema lacks`},
		"a field that the type lacks":    {types, strings.Replace(crd, "colour: {", "size: {type: string}\n              colour: {", 1), `a field "size" that LampSpec lacks`},
		"a value without a meaning":      {strings.Replace(types, "// Red is not green.", "", 1), crd, `value "Red" has no comment`},
		"a list that the schema has not": {types, strings.Replace(crd, "items:\n", "other:\n", 1), "the schema is no list"},
		"no kinds":                       {"package v1", crd, "no types in"},
		"no Go":                          {"???", crd, "read the types"},
		"two versions":                   {types, strings.Replace(crd, "  - name: v1\n", "  - name: v0\n  - name: v1\n", 1), "has 2 versions"},
		"no YAML":                        {types, "\t", "toolcall.dev_lamps.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := write(t, c.types, c.crd)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}
