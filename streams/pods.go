package streams

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Buckets of what workers are made from and run on, each by id; BucketWorkerPods
// is by endpoint and id. What is in BucketPods is run by drivers, so no role
// that serves strangers may write it.
const (
	BucketPods       = "pods"
	BucketWorkerPods = "worker_pods"
	BucketTemplates  = "templates"
	BucketVolumes    = "volumes"
	// BucketMachines has what each machine reports of its GPUs, by the machine's id;
	// BucketGPUs who holds each GPU and whether it is quarantined, by its UUID.
	BucketMachines = "machines"
	BucketGPUs     = "gpus"
)

// Scaling is the name of the stream of the autoscaler's decisions. The last
// message of a subject is what holds now.
const Scaling = "SCALING"

// scalingKept bounds the decisions kept of one endpoint, scalingAge all but
// the last: the server removes that too, and the autoscaler writes it again.
const (
	scalingKept = 1000
	scalingAge  = 7 * 24 * time.Hour
)

// ScalingSubject is where the decisions about an endpoint's workers are written.
func ScalingSubject(endpoint string) string { return "scaling." + endpoint }

func scalingConfig(c Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: Scaling, Subjects: []string{"scaling.*"}, MaxMsgsPerSubject: scalingKept, MaxAge: scalingAge,
		Storage: jetstream.FileStorage, Replicas: c.replicas(), Duplicates: time.Second, AllowDirect: true,
	}
}
