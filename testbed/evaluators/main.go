// Plays a sidecar evaluator of application-aware-quota: its protocol, grpc-go as libsidecar uses it, Kubernetes' own
// count of a pod, and libsidecar's habits. The socket's name is random, a killed process leaves its socket behind, and an
// error of the calculation is sent as a success with the list `null`.
//
// Flags make it misbehave in the ways that a client has to stand.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
)

var (
	dir      = flag.String("dir", "/var/run/aaq-sockets", "directory of the socket")
	name     = flag.String("name", "", "name of the socket; empty: sidecar-<random>.sock")
	config   = flag.String("config", "double", "double, triple, or first: all pods of a namespace but the first take a licence; anything else matches no pod")
	mode     = flag.String("mode", "", "hang, slow (59 s), noread, crash, unhealthy, mute (HealthCheck never answers)")
	errorFor = flag.String("error-for", "", "name of a pod for which the answer is an error")
	swallow  = flag.String("swallow-for", "", "name of a pod whose error is sent as a success")
	hangFor  = flag.String("hang-for", "", "name of a pod that is never answered")
	work     = flag.Duration("work", 0, "time that each answer takes")
)

// calls in flight, and the most there ever were: told in the answer to a pod named "calls".
var inFlight, most atomic.Int64

func usage(ctx context.Context, data []byte) (*[]byte, error) {
	now := inFlight.Add(1)
	defer inFlight.Add(-1)
	for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
	}
	r, err := readRequest(data)
	if err != nil {
		return nil, err
	}
	var pod corev1.Pod
	if err := json.Unmarshal(r.pod, &pod); err != nil {
		return answer([]byte("null"), true), nil
	}
	misbehave(pod.Name)
	time.Sleep(*work)
	switch pod.Name {
	case "":
	case *errorFor:
		return refusal("no licence server for " + pod.Name), nil
	case *swallow:
		return answer([]byte("null"), true), nil
	case "calls":
		return answer([]byte(fmt.Sprintf(`{"example.com/calls":"%d"}`, most.Load())), true), nil
	}
	for _, other := range r.others {
		if !json.Valid(other) {
			return refusal("another pod is not JSON"), nil
		}
	}
	if *config == "first" {
		return licence(&pod, r.others)
	}
	list, match, err := count(&pod)
	if err != nil {
		return answer([]byte("null"), match), nil
	}
	text, err := json.Marshal(list)
	return answer(text, match), err
}

func misbehave(pod string) {
	switch {
	case *mode == "hang" || (pod != "" && pod == *hangFor):
		select {}
	case *mode == "slow":
		time.Sleep(59 * time.Second)
	case *mode == "crash":
		os.Exit(3)
	}
}

// licence is one for each pod with the label, unless no other one of its namespace runs.
func licence(pod *corev1.Pod, others [][]byte) (*[]byte, error) {
	licences := 0
	for _, text := range others {
		var other corev1.Pod
		if err := json.Unmarshal(text, &other); err != nil {
			return refusal("another pod is none"), nil
		}
		_, labelled := other.Labels["label-app"]
		if labelled && other.UID != pod.UID && len(other.Spec.SchedulingGates) == 0 {
			licences = 1
		}
	}
	_, labelled := pod.Labels["label-app"]
	return answer([]byte(fmt.Sprintf(`{"pods":"1","example.com/license":"%d"}`, licences)), labelled), nil
}

// count is Kubernetes' count, twice or three times, of pods with the label.
func count(pod *corev1.Pod) (corev1.ResourceList, bool, error) {
	factor := map[string]int64{"double": 2, "triple": 3}[*config]
	_, labelled := pod.Labels["label-app"]
	finished := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	if factor == 0 || !labelled || finished {
		return corev1.ResourceList{}, false, nil
	}
	native, err := core.PodUsageFunc(pod, clock.RealClock{})
	if err != nil {
		return nil, true, err
	}
	list := corev1.ResourceList{}
	for key, amount := range native {
		sum := resource.Quantity{}
		for i := int64(0); i < factor; i++ {
			sum.Add(amount)
		}
		list[key] = sum
	}
	return list, true, nil
}

func healthCheck(context.Context, []byte) (*[]byte, error) {
	if *mode == "mute" {
		select {}
	}
	return health(*mode != "unhealthy"), nil
}

func method(name string, do func(context.Context, []byte) (*[]byte, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, dec func(any) error,
		_ grpc.UnaryServerInterceptor) (any, error) {
		var data []byte
		if err := dec(&data); err != nil {
			return nil, err
		}
		return do(ctx, data)
	}}
}

func main() {
	flag.Parse()
	socket := *name
	if socket == "" {
		const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
		random := make([]byte, 4)
		for i := range random {
			random[i] = letters[rand.Intn(len(letters))]
		}
		socket = "sidecar-" + string(random) + ".sock"
	}
	listener, err := net.Listen("unix", filepath.Join(*dir, socket))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *mode == "noread" {
		for {
			if _, err := listener.Accept(); err != nil {
				os.Exit(1)
			}
		}
	}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "evaluate.PodUsage",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{method("PodUsageFunc", usage), method("HealthCheck", healthCheck)},
	}, nil)
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
