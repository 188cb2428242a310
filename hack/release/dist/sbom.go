package dist

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// sbom is the bill of materials of a program: what the go command wrote into it. It has neither time nor serial
// number, so that the same program has the same one.
func (r *release) sbom(t target, path string) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read what %s was built of: %w", t, err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t, err)
	}
	sum := sha256.Sum256(program)
	self := purl(info.Main.Path, r.Version)
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: self, Type: cyclonedx.ComponentTypeApplication, Name: t.program, Version: r.Version,
		PackageURL: self + "#cmd/" + t.program,
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Properties: &[]cyclonedx.Property{{Name: "go:os", Value: t.os}, {Name: "go:arch", Value: t.arch}, {Name: "git:commit", Value: r.Commit}},
	}}
	components, refs := parts(info)
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: self, Dependencies: &refs}}
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, fmt.Errorf("write the bill of materials of %s: %w", t, err)
	}
	return text.Bytes(), nil
}

// parts are the modules in a program, and the standard library.
func parts(info *debug.BuildInfo) (components []cyclonedx.Component, refs []string) {
	modules := append([]*debug.Module{{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
	for _, m := range modules {
		for m.Replace != nil {
			m = m.Replace
		}
		ref := purl(m.Path, m.Version)
		component := cyclonedx.Component{
			BOMRef: ref, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: ref,
		}
		if m.Sum != "" {
			component.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}
		}
		components = append(components, component)
		refs = append(refs, ref)
	}
	return components, refs
}

func purl(module, version string) string {
	return "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
}
