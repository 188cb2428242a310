module toolcall.dev/operator/hack/cluster

go 1.26.0

require (
	golang.org/x/sys v0.49.0
	k8s.io/client-go v0.37.2
	toolcall.dev/operator/hack v0.0.0-00010101000000-000000000000
)

require (
	github.com/docker/cli v29.7.2+incompatible // indirect
	github.com/docker/docker-credential-helpers v0.9.5 // indirect
	github.com/google/go-containerregistry v0.22.1 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	golang.org/x/sync v0.24.0 // indirect
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // indirect
)

replace toolcall.dev/operator/hack => ..
