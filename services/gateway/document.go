package gateway

import (
	"bytes"
	"encoding/json"

	"flightline/shared/job"
	"flightline/shared/queue"
)

// policyView is what a worker may want to know of its limits, in milliseconds.
type policyView struct {
	ExecutionTimeout int64 `json:"executionTimeout"`
	TTL              int64 `json:"ttl"`
	LowPriority      bool  `json:"lowPriority,omitempty"`
}

// document is the answer to a take: a job, or an array of them.
func document(taken []*queue.Lease, batch bool) []byte {
	size := 2
	for _, l := range taken {
		size += len(l.Input) + len(l.S3Config) + len(l.Job.Webhook) + 512
	}
	var b bytes.Buffer
	b.Grow(size)
	if batch {
		b.WriteByte('[')
	}
	for i, l := range taken {
		if i > 0 {
			b.WriteByte(',')
		}
		writeJob(&b, l)
	}
	if batch {
		b.WriteByte(']')
	}
	return b.Bytes()
}

// writeJob writes a job as a worker sees it. The input is as it was submitted,
// byte for byte, and always there: the SDK wants the key.
func writeJob(b *bytes.Buffer, l *queue.Lease) {
	j := &l.Job
	b.WriteString(`{"id":"` + string(j.ID) + `","input":`) // an id needs no escape
	if len(l.Input) == 0 {
		b.WriteString("{}")
	}
	b.Write(l.Input)
	member(b, "policy", policyView{
		ExecutionTimeout: j.ExecutionTimeout.Milliseconds(), TTL: j.Expires.Sub(j.Submitted).Milliseconds(), LowPriority: j.Class == job.LowPriority,
	})
	if j.Webhook != "" {
		member(b, "webhook", j.Webhook)
	}
	if len(l.S3Config) > 0 {
		b.WriteString(`,"s3Config":`)
		b.Write(l.S3Config)
	}
	writeTrace(b, j)
	b.WriteByte('}')
}

func member(b *bytes.Buffer, name string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return // a string or numbers: it cannot be
	}
	b.WriteString(`,"` + name + `":`)
	b.Write(text)
}
