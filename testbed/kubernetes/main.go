// Program kubernetes is a whole Kubernetes control plane in one file: the name it is
// called by (or its first argument) selects the component.
//
// One program instead of five keeps the build short (the components share most of
// their packages) and the cache small.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func run(command *cobra.Command, args []string) int {
	command.SetArgs(args)
	return cli.Run(command)
}

// The components by name; each takes the arguments after its name and returns an exit code.
var components = map[string]func(args []string) int{
	"etcd": func(args []string) int {
		etcdmain.Main(append([]string{"etcd"}, args...))
		return 0
	},
	"kube-apiserver": func(args []string) int {
		return run(apiserver.NewAPIServerCommand(), args)
	},
	"kube-controller-manager": func(args []string) int {
		return run(controllermanager.NewControllerManagerCommand(), args)
	},
	"kube-scheduler": func(args []string) int {
		return run(scheduler.NewSchedulerCommand(), args)
	},
	"kubectl": func(args []string) int {
		return run(kubectl.NewDefaultKubectlCommand(), args)
	},
}

func main() {
	name := filepath.Base(os.Args[0])
	args := os.Args[1:]
	component, found := components[name]
	if !found && len(args) > 0 {
		name, args = args[0], args[1:]
		component, found = components[name]
	}
	if !found {
		names := make([]string, 0, len(components))
		for name := range components {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "usage: kubernetes {%s} [flags]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	// Components look at their own command line (kubectl for plugins, etcd for flags).
	os.Args = append([]string{name}, args...)
	os.Exit(component(args))
}
