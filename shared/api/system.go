package api

// System answers /v1/system: how the installation is.
type System struct {
	// At is when the streams were looked at: answers may be some seconds old.
	At string `json:"at"`
	// Version is that of the program that answers.
	Version   string    `json:"version,omitempty"`
	Storage   Storage   `json:"storage"`
	Streams   Streams   `json:"streams"`
	Consumers Consumers `json:"consumers"`
	// Processes are those that serve a role, by role and id.
	Processes []Process `json:"processes"`
	// Findings are those of the doctor's checks that cost little, the worst first.
	Findings []Finding `json:"findings"`
}

// Storage is what JetStream keeps, and where it may. What is not known is absent.
type Storage struct {
	UsedBytes uint64 `json:"usedBytes"`
	// LimitBytes is the account's, absent if it has none.
	LimitBytes uint64 `json:"limitBytes,omitempty"`
	// DiskFreeBytes and DiskBytes are of the file system of the NATS within the
	// process that answers.
	DiskFreeBytes uint64 `json:"diskFreeBytes,omitempty"`
	DiskBytes     uint64 `json:"diskBytes,omitempty"`
}

// Streams are the streams and buckets.
type Streams struct {
	// Count, Messages and Bytes are of all of them.
	Count    int    `json:"count"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	// Matched is how many have the name that was asked for.
	Matched int `json:"matched"`
	// List are those that all endpoints share, and the queues with the most messages.
	List []Stream `json:"list"`
}

// Stream is a stream or the stream of a bucket.
type Stream struct {
	Name string `json:"name"`
	// Endpoint is that of a queue, "" for what endpoints share.
	Endpoint string `json:"endpoint,omitempty"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	// MaxBytes and MaxAgeMs are its limits, absent if it has none.
	MaxBytes  uint64 `json:"maxBytes,omitempty"`
	MaxAgeMs  int64  `json:"maxAgeMs,omitempty"`
	Consumers int    `json:"consumers"`
	Replicas  int    `json:"replicas"`
}

// Consumers are the durable consumers of the streams that are listed.
type Consumers struct {
	// Count is how many consumers all streams have.
	Count int `json:"count"`
	// List has those with the longest lag first.
	List []Consumer `json:"list"`
}

// Consumer is a durable consumer.
type Consumer struct {
	Name   string `json:"name"`
	Stream string `json:"stream"`
	// Pending are the messages that it has not handed out, AckPending those that it
	// handed out and that are not acknowledged, Redelivered those of them that it
	// handed out more than once.
	Pending     uint64 `json:"pending"`
	AckPending  int    `json:"ackPending"`
	Redelivered int    `json:"redelivered"`
	// Waiting is how many pulls wait for a message.
	Waiting int  `json:"waiting"`
	Paused  bool `json:"paused,omitempty"`
}

// Process is a process that serves a role.
type Process struct {
	ID   string `json:"id"`
	Role string `json:"role"`
	// Version, Hostname and StartedAt are absent for an older program.
	Version   string `json:"version,omitempty"`
	Hostname  string `json:"hostname,omitempty"`
	StartedAt string `json:"startedAt,omitempty"`
}

// Finding is what a check of the doctor found.
type Finding struct {
	Check string `json:"check"`
	// State is "ok", "warn" or "fail".
	State string `json:"state"`
	Text  string `json:"text"`
	// Hint is what to do about it, "" if nothing.
	Hint string `json:"hint,omitempty"`
}
