package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
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
	// completionsAtOnce is how many completions are asked for at a time. They
	// come without payloads.
	completionsAtOnce = 4096
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

// Completions calls each for every completion that is to be delivered now,
// until ctx ends. Several processes share them. each must not block. It sits
// out an outage.
func (q *Queue) Completions(ctx context.Context, each func(*Completion)) error {
	sweep, tries := newSweeper(q), newFirstTries(q)
	var sweeping sync.WaitGroup
	sweeping.Go(func() { sweep.run(ctx) })
	defer sweeping.Wait()
	known := func(c *Completion) {
		c.sweep, c.tries = sweep, tries
		each(c)
	}
	for ctx.Err() == nil {
		if err := q.consumeCompletions(ctx, known); err != nil && ctx.Err() == nil {
			q.log.WarnContext(ctx, "completions are not read, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(factsPause):
		}
	}
	return nil
}

func (q *Queue) consumeCompletions(ctx context.Context, each func(*Completion)) error {
	within, cancel := bounded(ctx)
	defer cancel()
	back, server := q.renumbered()
	consumer, err := q.js.Consumer(within, streams.Webhooks, streams.WebhookConsumer)
	if err != nil {
		return fmt.Errorf("bind consumer %s: %w", streams.WebhookConsumer, err)
	}
	failed := make(chan error, 1)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		c, err := q.completionOf(m)
		if err != nil {
			q.log.ErrorContext(ctx, "completion dropped", "subject", m.Subject(), "error", err)
			_ = m.Term()
			return
		}
		c.server = server
		each(c)
	}, jetstream.PullMaxMessages(completionsAtOnce), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) {
			select {
			case failed <- err:
			default:
			}
		}
	}))
	if err != nil {
		return fmt.Errorf("consume %s: %w", streams.WebhookConsumer, err)
	}
	defer func() {
		consuming.Stop()
		<-consuming.Closed()
	}()
	select {
	case <-ctx.Done():
	case <-back:
		consuming.Drain() // what came before is the other server's
		select {
		case <-ctx.Done():
		case <-consuming.Closed():
		}
	case err := <-failed:
		return err
	}
	return nil
}

func (q *Queue) completionOf(m jetstream.Msg) (*Completion, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", m.Subject(), err)
	}
	ep, id, _, err := streams.ParseCompletion(m.Subject())
	if err != nil {
		return nil, err
	}
	w, err := parseWire(m.Headers().Get(metaHeader))
	if err != nil {
		return nil, fmt.Errorf("decode job %s: %w", id, err)
	}
	var r record
	w.fill(&r, place{endpoint: ep}, id, meta.Sequence.Stream)
	c := &Completion{Job: r.Job, Replay: m.Headers().Get(replayHeader), q: q, refs: [2]*payloadRef{r.inRef, r.outRef}, msg: m, seq: r.seq}
	c.Fresh = meta.NumDelivered == 1 && c.Replay == "" && m.Headers().Get(triedHeader) == ""
	if input := m.Headers().Get(inputHeader); input != "" && w.tellsAll() {
		c.short, c.whole = []byte(input), true
	}
	return c, nil
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
func (c *Completion) Extend() { _ = c.msg.InProgress() }

// Later gives the completion back; it comes again after d, to whichever
// process. One of 0 or less is none.
func (c *Completion) Later(d time.Duration) {
	if d <= 0 {
		_ = c.msg.Nak()
		return
	}
	_ = c.msg.NakWithDelay(d)
}

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
