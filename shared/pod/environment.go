package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Worker is what the environment of a worker is made from that is built on
// RunPod's SDK.
type Worker struct {
	// BaseURL is where it reaches the gateway, as "http://host:port".
	BaseURL string
	// Endpoint and ID are ids; the worker's is that of its pod.
	Endpoint, ID string
	// Token lets it in.
	Token string
	// PingInterval is how often it should ping, in whole milliseconds.
	PingInterval time.Duration
	// Env is set besides. What the platform sets itself wins.
	Env map[string]string
}

// Variable is one of an environment.
type Variable struct{ Name, Value string }

// WorkerEnvironment is the whole environment that a worker needs: first what
// RunPod's SDK reads, then Env by name. The addresses have the worker's id in
// them and need a ?, since the SDK appends its parameters; it puts the job's id
// in place of $ID.
func WorkerEnvironment(w Worker) []Variable {
	at := func(operation, rest string) string {
		return fmt.Sprintf("%s/v2/%s/%s/%s%s?gpu=any", strings.TrimRight(w.BaseURL, "/"), w.Endpoint, operation, w.ID, rest)
	}
	all := []Variable{
		{"RUNPOD_WEBHOOK_GET_JOB", at("job-take", "")},
		{"RUNPOD_WEBHOOK_POST_OUTPUT", at("job-done", "/$ID")},
		{"RUNPOD_WEBHOOK_POST_STREAM", at("job-stream", "/$ID")},
		{"RUNPOD_WEBHOOK_PING", at("ping", "")},
		{"RUNPOD_PING_INTERVAL", fmt.Sprint(w.PingInterval.Milliseconds())},
		{keyVariable, w.Token},
		{"RUNPOD_POD_ID", w.ID},
		{"RUNPOD_ENDPOINT_ID", w.Endpoint},
	}
	for _, v := range []Variable{
		{"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS", "true"},
		{"RUNPOD_LOG_LEVEL", "INFO"},
		{"RUNPOD_DEBUG_LEVEL", "INFO"},
	} {
		if _, own := w.Env[v.Name]; !own {
			all = append(all, v)
		}
	}
	given := len(all)
	for _, name := range slices.Sorted(maps.Keys(w.Env)) {
		if !slices.ContainsFunc(all[:given], func(v Variable) bool { return v.Name == name }) {
			all = append(all, Variable{name, w.Env[name]})
		}
	}
	return all
}
