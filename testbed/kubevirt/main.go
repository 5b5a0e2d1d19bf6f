// Program kubevirt is KubeVirt's virt-controller, and the definitions of the kinds it needs:
// `kubevirt virt-controller [flags]` runs it, `kubevirt crds` prints them as YAML.
package main

import (
	"fmt"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"sigs.k8s.io/yaml"
)

// The kinds without which virt-controller does not start; it does without the others.
var definitions = []func() (*apiextensions.CustomResourceDefinition, error){
	components.NewKubeVirtCrd,
	components.NewVirtualMachineCrd,
	components.NewVirtualMachineInstanceCrd,
	components.NewVirtualMachineInstanceMigrationCrd,
	components.NewMigrationPolicyCrd,
}

func printDefinitions() error {
	for _, definition := range definitions {
		crd, err := definition()
		if err != nil {
			return err
		}
		text, err := yaml.Marshal(crd)
		if err != nil {
			return fmt.Errorf("printing %s: %w", crd.Name, err)
		}
		if _, err := fmt.Printf("---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	switch name {
	case "virt-controller":
		// It reads its flags from the process's command line.
		os.Args = os.Args[1:]
		watch.Execute()
	case "crds":
		if err := printDefinitions(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: kubevirt {virt-controller|crds} [flags]")
		os.Exit(2)
	}
}
