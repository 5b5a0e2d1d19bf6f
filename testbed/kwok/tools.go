// Package kwok pins the version of KWOK, which plays the kubelets of the test bed's nodes.
// It holds no code: the program is built from its own module with
// `go build sigs.k8s.io/kwok/cmd/kwok`.
package kwok
