// Package krew pins the version of krew, which installs plug-ins of kubectl, and of its validator of manifests.
// It holds no code: the programs are built from krew's own module with
// `go build sigs.k8s.io/krew/cmd/krew` and `go build sigs.k8s.io/krew/cmd/validate-krew-manifest`.
package krew
