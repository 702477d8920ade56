package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/streams"
)

const (
	// replayHeader tells the rounds of delivery of one completion apart.
	replayHeader = "Flightline-Replay"
	// triedHeader is on a completion that may have been tried as another message.
	triedHeader = "Flightline-Tried"
	// inputHeader repeats an input of inputMost bytes at most, so that whoever
	// delivers need not read the rest of the message.
	inputHeader = "Flightline-Input"
	inputMost   = 4 << 10
)

// ErrPayloadGone means that a completion's input or output can no longer be
// read; trying again does not help.
var ErrPayloadGone = errors.New("queue: the payload is gone")

// Completion is the end of an attempt that waits for its webhook. Whoever got
// it from Completions calls one of Done, Later and Keep; if he does not, it
// comes again after streams.WebhookWait, or that long after the last Extend.
type Completion struct {
	// Job has its Output after Load only, unless it is short.
	Job job.Job
	// Input is the job's input after Load.
	Input json.RawMessage
	// Replay is "" the first time, and different each time it is replayed.
	Replay string
	// Fresh: as far as its message tells, nobody has tried to deliver it, so
	// that LastDelivery would find nothing. LogDelivery knows for certain.
	Fresh bool
	// Ends is when the queue forgets it, delivered or not, in server time.
	Ends time.Time

	// short is the input if the header has it, whole: all else is there too.
	short []byte
	whole bool

	q     *Queue
	refs  [2]*payloadRef
	msg   jetstream.Msg
	sweep *sweeper
	tries *firstTries
	// seq is where the whole of it lies in WEBHOOKS, as server has it.
	seq    uint64
	server string
}

// Load reads the input and the output, unless they are short and came with the
// completion. It returns ErrPayloadGone, job.ErrNotFound if the completion is
// no longer in the queue, and ErrUnavailable.
func (c *Completion) Load(ctx context.Context) error {
	if c.whole {
		c.Input = c.short
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	m, err := c.read(ctx)
	if errors.Is(err, errNoMessage) {
		return job.ErrNotFound
	}
	if err != nil {
		return err
	}
	r, err := decode(place{endpoint: c.Job.Endpoint}, c.Job.ID, m)
	if err != nil {
		return err
	}
	c.Job, c.Input, c.refs = r.Job, r.input, [2]*payloadRef{r.inRef, r.outRef}
	if r.inRef != nil {
		if c.Input, err = c.q.loadKept(ctx, r.inRef); err != nil {
			return err
		}
	}
	if r.outRef != nil {
		c.Job.Output, err = c.q.loadKept(ctx, r.outRef)
	}
	return err
}

// read is the whole message, errNoMessage if it is gone: another one may have
// its number by now (numbered).
func (c *Completion) read(ctx context.Context) (*stored, error) {
	m, err := c.q.leaderSeq(ctx, streams.Webhooks, c.seq)
	if err == nil && m.subject != streams.WebhookSubject(c.Job.Endpoint, c.Job.ID, c.Job.Attempt) {
		return nil, errNoMessage
	}
	return m, err
}

// loadKept reads a copy that announce made.
func (q *Queue) loadKept(ctx context.Context, ref *payloadRef) ([]byte, error) {
	p, err := streams.PartitionOf(ref.Subject)
	if err != nil {
		return nil, err
	}
	data, err := q.loadPayload(ctx, place{partition: p}, ref)
	if errors.Is(err, errPayload) {
		return nil, fmt.Errorf("%w: %w", ErrPayloadGone, err)
	}
	return data, err
}

// Extend keeps the completion from other processes for another
// streams.WebhookWait. It fails silently; then it may be delivered twice.
func (c *Completion) Extend() {
	if c.numbered() {
		_ = c.msg.InProgress()
	}
}

// Later gives the completion back; it comes again after d, to whichever
// process. One of 0 or less is none.
func (c *Completion) Later(d time.Duration) {
	switch {
	case !c.numbered(): // it comes again by itself
	case d <= 0:
		_ = c.msg.Nak()
	default:
		_ = c.msg.NakWithDelay(d)
	}
}

// numbered: what is said of the completion is not taken for another's.
func (c *Completion) numbered() bool { return c.q.numbered(c.server) }

// Done takes the completion out of the queue for good, within a second
// and with many others, and at once its copies of payloads. It may fail
// silently: then it comes again, and the log of deliveries must tell that it is
// done.
func (c *Completion) Done(ctx context.Context) {
	c.sweep.add(swept{c.seq, c.msg, time.Now(), c.server})
	if c.refs == [2]*payloadRef{} {
		return
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	for _, ref := range c.refs {
		if ref == nil {
			continue
		}
		p, err := streams.PartitionOf(ref.Subject)
		if err == nil {
			err = c.q.purgeAll(ctx, streams.Payloads(p), ref.Subject)
		}
		if err != nil {
			c.q.log.DebugContext(ctx, "copy not removed, it expires", "endpoint", c.Job.Endpoint, "job", c.Job.ID, "error", err)
		}
	}
}
