package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// definition is the part of a CustomResourceDefinition that a page shows.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind       string   `json:"kind"`
			Plural     string   `json:"plural"`
			ShortNames []string `json:"shortNames"`
			Categories []string `json:"categories"`
		} `json:"names"`
		Versions []version `json:"versions"`
	} `json:"spec"`
}

type version struct {
	Name    string `json:"name"`
	Columns []struct {
		Name     string `json:"name"`
		Path     string `json:"jsonPath"`
		Priority int    `json:"priority"`
	} `json:"additionalPrinterColumns"`
	Schema struct {
		OpenAPI schema `json:"openAPIV3Schema"`
	} `json:"schema"`
}

// schema is one field as the API server knows it.
type schema struct {
	Description   string            `json:"description"`
	Type          string            `json:"type"`
	Format        string            `json:"format"`
	Default       json.RawMessage   `json:"default"`
	Enum          []json.RawMessage `json:"enum"`
	Pattern       string            `json:"pattern"`
	Minimum       *float64          `json:"minimum"`
	Maximum       *float64          `json:"maximum"`
	MinLength     *int64            `json:"minLength"`
	MaxLength     *int64            `json:"maxLength"`
	MinItems      *int64            `json:"minItems"`
	MaxItems      *int64            `json:"maxItems"`
	MaxProperties *int64            `json:"maxProperties"`
	IntOrString   bool              `json:"x-kubernetes-int-or-string"`
	ListType      string            `json:"x-kubernetes-list-type"`
	ListMapKeys   []string          `json:"x-kubernetes-list-map-keys"`
	Rules         []rule            `json:"x-kubernetes-validations"`
	Required      []string          `json:"required"`
	Properties    map[string]schema `json:"properties"`
	Items         *schema           `json:"items"`
	Values        *schema           `json:"additionalProperties"`
}

type rule struct {
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

func readDefinition(path string) (*definition, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := &definition{}
	if err := yaml.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(d.Spec.Versions) != 1 {
		return nil, fmt.Errorf("%s has %d versions: a page shows one; write a page for each", path, len(d.Spec.Versions))
	}
	return d, nil
}

// inner follows the suffix of a path ("[]" for a list's items, "{}" for a map's values).
func (s *schema) inner(suffix string) (*schema, error) {
	for ; suffix != ""; suffix = suffix[2:] {
		next := s.Items
		if strings.HasPrefix(suffix, "{}") {
			next = s.Values
		}
		if next == nil {
			return nil, fmt.Errorf("the schema is no %s, but the Go type is", map[byte]string{'[': "list", '{': "map"}[suffix[0]])
		}
		s = next
	}
	return s, nil
}

// typeName says in a few words what a field holds.
func (s *schema) typeName() string {
	switch {
	case s.Type == "array" && s.Items != nil:
		return "list of " + s.Items.typeName()
	case s.Type == "object" && s.Values != nil:
		return "map of " + s.Values.typeName()
	case s.IntOrString:
		return "integer or string"
	case s.Format == "int32" || s.Format == "int64" || s.Format == "date-time":
		return strings.TrimPrefix(s.Type+" ("+s.Format+")", " ")
	default:
		return s.Type
	}
}

// bounds are what the API server refuses, as short phrases. Those of a list's items follow.
func (s *schema) bounds() []string {
	var all []string
	add := func(format string, number *int64) {
		if number != nil {
			all = append(all, fmt.Sprintf(format, *number))
		}
	}
	if s.Minimum != nil {
		all = append(all, fmt.Sprintf("at least %.0f", *s.Minimum))
	}
	if s.Maximum != nil {
		all = append(all, fmt.Sprintf("at most %.0f", *s.Maximum))
	}
	if s.MinLength != nil && *s.MinLength == 1 || s.MinItems != nil && *s.MinItems == 1 {
		all = append(all, "not empty")
	} else {
		add("at least %d characters", s.MinLength)
		add("at least %d items", s.MinItems)
	}
	add("at most %d characters", s.MaxLength)
	add("at most %d items", s.MaxItems)
	add("at most %d entries", s.MaxProperties)
	if len(s.Enum) > 0 {
		all = append(all, "one of "+string(bytes.Join(quoteAll(s.Enum), []byte(", "))))
	}
	if s.Pattern != "" {
		all = append(all, "matches `"+s.Pattern+"`")
	}
	if len(s.ListMapKeys) > 0 {
		all = append(all, "one item per "+strings.Join(s.ListMapKeys, " and "))
	}
	return all
}

func quoteAll(values []json.RawMessage) [][]byte {
	quoted := make([][]byte, 0, len(values))
	for _, v := range values {
		quoted = append(quoted, []byte("`"+strings.Trim(string(v), `"`)+"`"))
	}
	return quoted
}
