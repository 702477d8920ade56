package queue

import (
	"bytes"
	"strings"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
)

// shorten puts all of a small completion into the header of its message.
func shorten(m *nats.Msg, r *record) {
	if r.inRef == nil && len(r.input) > 0 && len(r.input) <= inputMost && !bytes.ContainsAny(r.input, "\r\n") {
		m.Header.Set(inputHeader, string(r.input))
	}
}

// Size is about how many bytes the completion has with it that Shed drops.
func (c *Completion) Size() int {
	n := 0
	for key, values := range c.msg.Headers() {
		n += len(key)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

// Shed drops what Load reads again. Until then, Job has ID, Endpoint, Attempt,
// Submitted, Queued, Finished and Webhook only.
func (c *Completion) Shed() {
	c.Job = job.Job{
		ID: c.Job.ID, Endpoint: c.Job.Endpoint, Attempt: c.Job.Attempt,
		Submitted: c.Job.Submitted, Queued: c.Job.Queued, Finished: c.Job.Finished, Webhook: strings.Clone(c.Job.Webhook),
	}
	c.Replay = strings.Clone(c.Replay)
	c.short, c.whole = nil, false
	clear(c.msg.Headers())
}
