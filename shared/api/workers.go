package api

import "time"

// WorkerSpec is a worker to admit. Without an ID the server chooses one.
type WorkerSpec struct {
	ID *string `json:"id,omitempty"`
}

// Worker is a worker that was admitted with a token of its own, or that lives and
// speaks NATS.
type Worker struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	// Protocol is "http" or "nats".
	Protocol string `json:"protocol"`
	// State is "idle", "running" or "unhealthy" by its last ping, "" without a recent
	// one.
	State string `json:"state,omitempty"`
	// Running are the ids of the jobs it holds.
	Running []string `json:"running"`
	// Draining means that it gets no more jobs.
	Draining bool `json:"draining"`
	// Last4 are the last characters of the token, "" for a worker that speaks NATS.
	Last4   string    `json:"last4"`
	Created time.Time `json:"createdAt"`
	// PingIntervalMs is how often it should ping, in milliseconds.
	PingIntervalMs int64 `json:"pingIntervalMs"`
	// Token is the token itself. Only the answer that makes it has it.
	Token string `json:"token,omitempty"`
	// Env is what the endpoint sets for its workers, secrets included. Only the answer
	// that makes the token has it.
	Env map[string]string `json:"env,omitempty"`
}
