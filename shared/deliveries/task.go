package deliveries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
	"flightline/streams"
)

const (
	// replayHeader has the token of a redrive or replay.
	replayHeader = "Flightline-Replay"
	// triedHeader marks a task that may have been tried as another message. It has
	// the sequence of the dead letter that it was.
	triedHeader = "Flightline-Tried"
)

// Task is the end of an attempt that waits for its webhook. The function
// that Consume calls with it ends it by Ack, Nak or DeadLetter.
// Otherwise it is redelivered streams.WebhookWait after it came or after the
// last Extend.
type Task struct {
	// Job has no more than ID, Endpoint, Status, Attempt, Submitted, Queued,
	// Finished, Webhook and Trace before Load.
	Job job.Job
	// Input is the job's input after Load.
	Input json.RawMessage
	// Replay is "" the first time, and different each time it is replayed.
	Replay string
	// Fresh means that its message shows no earlier attempt, so that Last
	// would find none. Append decides.
	Fresh bool
	// Ends is when it expires, delivered or not, in server time.
	Ends time.Time

	s    *Store
	size int                  // of its message's data
	refs []*record.PayloadRef // its copies of payloads
	msg  jetstream.Msg
	// seq is its sequence in WEBHOOKS, as numbered by server.
	seq    uint64
	server string
}

// Size is how many bytes of input and output Load reads.
func (c *Task) Size() int64 {
	size := int64(c.size)
	for _, ref := range c.refs {
		size += int64(ref.Size)
	}
	return size
}

// Load reads the whole job with its input and output. It takes half of
// streams.WebhookWait at most, and returns ErrPayloadGone, job.ErrNotFound if the task is
// no longer in the queue, and bus.ErrUnavailable.
func (c *Task) Load(ctx context.Context) error {
	ctx, cancel := bus.BoundedFor(ctx, min(copyTimeout(c.refs), streams.WebhookWait/2-bus.CallTimeout))
	defer cancel()
	m, err := c.readDirect(ctx)
	if err != nil {
		m, err = c.read(ctx)
	}
	if errors.Is(err, bus.ErrNoMessage) {
		return job.ErrNotFound
	}
	if err != nil {
		return err
	}
	r, err := record.Decode(record.Location{Endpoint: c.Job.Endpoint}, c.Job.ID, m)
	if err != nil {
		return err
	}
	c.Job, c.Input, c.refs = r.Job, r.Input, r.PayloadRefs()
	if r.InputRef != nil {
		if c.Input, err = record.LoadPayload(ctx, c.s.bus, r.InputRef); err != nil {
			return err
		}
	}
	if r.OutputRef != nil {
		c.Job.Output, err = record.LoadPayload(ctx, c.s.bus, r.OutputRef)
	}
	return err
}

// readDirect reads the whole message from any replica. A replica may lack it.
func (c *Task) readDirect(ctx context.Context) (*bus.Message, error) {
	subject := streams.WebhookSubject(c.Job.Endpoint, c.Job.ID, c.Job.Attempt)
	m, err := c.s.bus.DirectNext(ctx, streams.Webhooks, subject, c.seq)
	if err != nil {
		return nil, err
	}
	if bus.Sequence(m) != c.seq {
		return nil, bus.ErrNoMessage
	}
	return &bus.Message{Subject: subject, Seq: c.seq, Header: m.Header, Data: m.Data}, nil
}

// read reads the whole message from the leader. It returns bus.ErrNoMessage if
// the message is gone; another one may have its sequence (see numbered).
func (c *Task) read(ctx context.Context) (*bus.Message, error) {
	m, err := c.s.bus.LeaderAt(ctx, streams.Webhooks, c.seq)
	if err == nil && m.Subject != streams.WebhookSubject(c.Job.Endpoint, c.Job.ID, c.Job.Attempt) {
		return nil, bus.ErrNoMessage
	}
	return m, err
}

// Extend extends the lease of the task by streams.WebhookWait. It fails silently;
// then the task may be delivered twice.
func (c *Task) Extend() {
	if c.numbered() {
		_ = c.msg.InProgress()
	}
}

// Nak returns the task to the queue; it is redelivered after d, to any process. The
// server keeps that while it is restarted only of a delay (docs/design/jetstream.md#f16).
func (c *Task) Nak(d time.Duration) {
	if c.numbered() { // else it comes again by itself
		_ = c.msg.NakWithDelay(max(d, time.Nanosecond))
	}
}

// numbered reports whether the task's sequence still names it.
func (c *Task) numbered() bool { return c.s.numbered(c.server) }

// numbered reports whether the sequences that server gave still name the same
// messages. After a power loss, a single server may reuse the sequences of
// messages that it delivered before they were on the disk. Replicas, and a
// server that delivers only what is on the disk, never reuse one.
func (s *Store) numbered(server string) bool {
	return !s.bus.HasBarrier() || s.bus.Conn().ConnectedServerId() == server
}

// Ack removes the task and its copies of payloads. It may fail silently: then
// the task is redelivered, and the log of deliveries must show that it is done.
func (c *Task) Ack(ctx context.Context) {
	if c.numbered() {
		_ = c.msg.Ack()
	}
	if len(c.refs) == 0 {
		return
	}
	subjects := make([]string, len(c.refs))
	for i, ref := range c.refs {
		subjects[i] = ref.Subject
	}
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	c.s.dropCopies(ctx, subjects)
}

// consumeRetryDelay is the pause before tasks are requested again after a failure.
const consumeRetryDelay = 500 * time.Millisecond

// maxPulledTasks is how many tasks are requested at a time. They come without
// payloads.
const maxPulledTasks = 4096

// Consume calls each with every task that is due, until ctx ends and
// through outages. Several processes share the tasks. each must not block.
// Meanwhile it removes tasks that a server which stopped left behind.
func (s *Store) Consume(ctx context.Context, each func(*Task)) error {
	var removing sync.WaitGroup
	removing.Go(func() { s.removeLeftovers(ctx) })
	defer removing.Wait()
	outage := telemetry.NewOutageLog()
	for ctx.Err() == nil {
		if err := s.consume(ctx, each); err != nil && ctx.Err() == nil {
			outage.Warn(ctx, s.log, "webhook tasks are not read, trying again", slog.Any("err", err))
		}
		_ = retry.Sleep(ctx, consumeRetryDelay) // the loop sees the end of ctx
	}
	return nil
}

func (s *Store) consume(ctx context.Context, each func(*Task)) error {
	within, cancel := bus.Bounded(ctx)
	defer cancel()
	back := s.bus.Availability().Reconnected() // before the server is read: so a reconnection closes it
	server := s.bus.Conn().ConnectedServerId()
	consumer, err := s.js.Consumer(within, streams.Webhooks, streams.WebhookConsumer)
	if err != nil {
		return fmt.Errorf("bind consumer %s: %w", streams.WebhookConsumer, err)
	}
	untilGone, gone := bus.ConsumerGone()
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		c, err := s.taskOf(m)
		if err != nil {
			s.log.ErrorContext(ctx, "webhook task dropped", "subject", m.Subject(), "err", err)
			if s.numbered(server) {
				_ = m.Term()
			}
			return
		}
		c.server = server
		each(c)
	}, jetstream.PullMaxMessages(maxPulledTasks), untilGone)
	if err != nil {
		return fmt.Errorf("consume %s: %w", streams.WebhookConsumer, err)
	}
	defer func() {
		consuming.Stop()
		<-consuming.Closed()
	}()
	select {
	case <-ctx.Done():
	case <-consuming.Closed():
		return errors.New("deliveries: the server refuses to hand out webhook tasks")
	case <-back:
		consuming.Drain() // earlier messages may be the other server's
		select {
		case <-ctx.Done():
		case <-consuming.Closed():
		}
	case err := <-gone:
		return err
	}
	return nil
}

func (s *Store) taskOf(m jetstream.Msg) (*Task, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", m.Subject(), err)
	}
	r, err := parseTask(m.Subject(), m.Headers(), meta.Sequence.Stream)
	if err != nil {
		return nil, err
	}
	c := &Task{
		Job: job.Job{
			ID: r.ID, Endpoint: r.Endpoint, Status: r.Status, Attempt: r.Attempt, Submitted: r.Submitted, Queued: r.Queued, Finished: r.Finished,
			Webhook: strings.Clone(r.Webhook), Trace: strings.Clone(r.Trace), // not the message's memory
		},
		Replay: m.Headers().Get(replayHeader), s: s, refs: r.PayloadRefs(), msg: m, seq: r.Seq,
	}
	c.size, _ = strconv.Atoi(m.Headers().Get(nats.MsgSize)) // of the server: the consumer delivers headers alone
	c.Ends = endOf(meta.Timestamp, m.Headers().Get(jetstream.MsgTTLHeader))
	c.Fresh = meta.NumDelivered == 1 && c.Replay == "" && m.Headers().Get(triedHeader) == ""
	clear(m.Headers()) // thousands wait in memory; Load reads them again
	return c, nil
}

// parseTask decodes the header of a task or of a dead letter, which is stored with the
// sequence seq.
func parseTask(subject string, header nats.Header, seq uint64) (*record.Record, error) {
	endpoint, id, _, err := streams.ParseWebhook(subject)
	if err != nil {
		return nil, err
	}
	r, _, err := record.ParseHeader(record.Location{Endpoint: endpoint}, id, header, seq)
	return r, err
}

// endOf returns when the server removes a message that it stored at since.
func endOf(since time.Time, ttl string) time.Time {
	if d, err := time.ParseDuration(ttl); err == nil {
		return since.Add(d)
	}
	return since.Add(streams.WebhooksAge)
}
