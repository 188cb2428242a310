package dist

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"toolcall.dev/operator/hack/images/image"
)

// homepage is the project's, as in the metadata of the chart and of the client libraries.
const homepage = "https://toolcall.dev"

// descriptions are what an index of images shows.
var descriptions = map[string]string{
	"manager":      "The toolcall.dev operator: runs the tool calls of AI agents as Kubernetes objects",
	"runner":       "The first process of the toolcall.dev operator's tool pods",
	"mcp":          "Tool calls of the toolcall.dev operator for clients of the Model Context Protocol",
	consoleProgram: "A page that shows the toolcall.dev operator's calls and sessions in a browser",
	storeProgram:   "The output store that the toolcall.dev operator's chart installs",
}

// imageUser is who the programs run as, whatever a pod says.
const imageUser = "65532:65532"

// images makes an OCI image layout of each program, in images/, and bills of materials in sbom/.
func (r *release) images(ctx context.Context) error {
	programs, err := r.programs()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(r.dir, "images"), 0o755); err != nil {
		return fmt.Errorf("make the folder of the images: %w", err)
	}
	for _, program := range programs {
		if err := r.makeImage(ctx, program); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) makeImage(ctx context.Context, program string) error {
	labels := r.annotations(program)
	multi := image.Multi{
		Tag:         r.Version,
		Config:      v1.Config{Entrypoint: []string{"/" + program}, User: imageUser, WorkingDir: "/", Labels: labels},
		Annotations: maps.Clone(labels),
	}
	for _, arch := range r.Architectures {
		t := target{program, "linux", arch}
		path, sbom, err := r.buildWithSBOM(ctx, t)
		if err != nil {
			return err
		}
		multi.Variants = append(multi.Variants, image.Variant{
			Architecture: arch, Files: []image.File{{Source: path, Target: "/" + program}}, SBOM: sbom,
		})
	}
	r.Say("making the image of %s", program)
	digest, err := image.WriteLayout(filepath.Join(r.dir, "images", program), multi)
	if err != nil {
		return fmt.Errorf("make the image of %s: %w", program, err)
	}
	r.digests[program] = digest
	return nil
}

func (r *release) annotations(program string) map[string]string {
	const prefix = "org.opencontainers.image."
	all := map[string]string{}
	for key, value := range map[string]string{
		"title": "toolcall-" + program, "description": descriptions[program], "version": r.Version, "revision": r.Commit,
		"url": homepage, "source": r.SourceURL, "documentation": r.DocsURL, "licenses": r.Licenses,
	} {
		if value != "" {
			all[prefix+key] = value
		}
	}
	return all
}
