package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

const (
	definitions = "#/definitions/"
	intOrString = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
	quantity    = "io.k8s.apimachinery.pkg.api.resource.Quantity"
)

type groupVersionKind struct{ Group, Version, Kind string }

// name is that of a kind's schema as kubeconform looks for it.
func (k groupVersionKind) name() string {
	name := k.Kind + "-"
	if group, _, _ := strings.Cut(k.Group, "."); group != "" {
		name += group + "-"
	}
	return strings.ToLower(name + k.Version)
}

// schemasOf makes a JSON schema of each kind in an OpenAPI document, with the definitions that it needs. A field that the kind doesn't have
// is an error.
func schemasOf(document []byte) (map[string][]byte, error) {
	var swagger struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(document, &swagger); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	all := swagger.Definitions
	for name, definition := range all {
		switch {
		case name == intOrString || name == quantity:
			all[name] = map[string]any{"type": []string{"string", "number"}}
		case definition["properties"] != nil:
			definition["additionalProperties"] = false
		}
	}
	schemas := map[string][]byte{}
	for name, definition := range all {
		raw, err := json.Marshal(definition["x-kubernetes-group-version-kind"])
		if err != nil {
			return nil, fmt.Errorf("read the kinds of %s: %w", name, err)
		}
		var kinds []groupVersionKind
		if err := json.Unmarshal(raw, &kinds); err != nil {
			return nil, fmt.Errorf("read the kinds of %s: %w", name, err)
		}
		if len(kinds) != 1 {
			continue // Options and events that every group has.
		}
		needed := map[string]any{}
		collect(all, name, needed)
		schema, err := json.Marshal(map[string]any{"$ref": definitions + name, "definitions": needed})
		if err != nil {
			return nil, fmt.Errorf("write the schema of %s: %w", name, err)
		}
		schemas[kinds[0].name()] = schema
	}
	return schemas, nil
}

// collect adds a definition, and those that it refers to.
func collect(all map[string]map[string]any, name string, needed map[string]any) {
	if needed[name] != nil || all[name] == nil {
		return
	}
	needed[name] = all[name]
	var visit func(value any)
	visit = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if ref, ok := value["$ref"].(string); ok {
				collect(all, strings.TrimPrefix(ref, definitions), needed)
			}
			for _, each := range value {
				visit(each)
			}
		case []any:
			for _, each := range value {
				visit(each)
			}
		}
	}
	visit(all[name])
}
