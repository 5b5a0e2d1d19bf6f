// Program packaging renders Helm charts and kustomizations as `helm template` and `kustomize build` do, without a cluster.
//
//	packaging helm-template CHART RELEASE NAMESPACE KUBERNETES [VALUES]...
//	packaging helm-notes    CHART RELEASE NAMESPACE KUBERNETES [VALUES]...
//	packaging helm-lint     CHART [VALUES]...
//	packaging kustomize-build DIRECTORY
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/getter"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/release"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	// Helm logs what it ignores; only errors are for the caller.
	log.SetOutput(io.Discard)
	text, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

func run(args []string) (string, error) {
	if len(args) == 0 {
		return "", errors.New("no command")
	}
	command, args := args[0], args[1:]
	switch {
	case command == "helm-template" && len(args) >= 4:
		rendered, err := template(args[0], args[1], args[2], args[3], args[4:])
		if err != nil {
			return "", err
		}
		text := rendered.Manifest
		for _, hook := range rendered.Hooks {
			text += "---\n" + hook.Manifest + "\n"
		}
		return text, nil
	case command == "helm-notes" && len(args) >= 4:
		rendered, err := template(args[0], args[1], args[2], args[3], args[4:])
		if err != nil {
			return "", err
		}
		return rendered.Info.Notes, nil
	case command == "helm-lint" && len(args) >= 1:
		return "", lint(args[0], args[1:])
	case command == "kustomize-build" && len(args) == 1:
		return kustomize(args[0])
	}
	return "", fmt.Errorf("%s: unknown, or not these arguments", command)
}

// What `helm template` does (cmd/helm/template.go): an installation that is not sent.
func template(path, name, namespace, kubernetes string, files []string) (*release.Release, error) {
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return nil, err
	}
	chart, err := loader.Load(path)
	if err != nil {
		return nil, err
	}
	given, err := merged(files)
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(new(action.Configuration))
	install.DryRun = true
	install.ClientOnly = true
	install.Replace = true
	install.IncludeCRDs = true
	install.ReleaseName = name
	install.Namespace = namespace
	install.KubeVersion = version
	return install.Run(chart, given)
}

func lint(path string, files []string) error {
	given, err := merged(files)
	if err != nil {
		return err
	}
	linter := action.NewLint()
	linter.Strict = true
	linter.Namespace = "sluice-system"
	result := linter.Run([]string{path}, given)
	var all []error
	for _, message := range result.Messages {
		if message.Severity >= support.WarningSev {
			all = append(all, message)
		}
	}
	return errors.Join(append(all, result.Errors...)...)
}

func merged(files []string) (map[string]interface{}, error) {
	options := values.Options{ValueFiles: files}
	return options.MergeValues(getter.Providers{})
}

func kustomize(directory string) (string, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return "", err
	}
	text, err := built.AsYaml()
	return string(text), err
}
