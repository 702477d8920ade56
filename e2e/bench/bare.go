package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/streams"
)

// bareEndpoint has the queue of the bare pipeline. Its records lie where all
// records do.
const bareEndpoint = "bare"

const (
	// bareTTL is what the records and queue messages live, as by default.
	bareTTL = "90000s"
	// bareStatus is how the bare pipeline says that a job has ended.
	bareStatus = "Bare-Status"
)

// payload is the 256 bytes that each job, ours and bare, carries in and out.
var payload = []byte(`{"text":"` + strings.Repeat("x", 245) + `"}`)

// write publishes m by compare-and-set and returns its sequence.
func write(ctx context.Context, nc *nats.Conn, m *nats.Msg, expect uint64) (uint64, error) {
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(expect, 10))
	m.Header.Set(jetstream.MsgTTLHeader, bareTTL)
	got, err := nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Seq   uint64 `json:"seq"`
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(got.Data, &ack); err != nil {
		return 0, err
	}
	if ack.Error != nil {
		return 0, fmt.Errorf("write %s: %s", m.Subject, ack.Error.Description)
	}
	return ack.Seq, nil
}

func bareMessage(subject string) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: payload, Header: nats.Header{}}
}

func bareRecord(id job.ID) *nats.Msg {
	return bareMessage(streams.RecordSubject(0, bareEndpoint, id, 1))
}

// What the publisher can be asked to do. Nobody fetches the jobs of opQuiet
// and opCancel: the consumer has the normal class only.
const (
	opSubmit = "submit"
	opQuiet  = "quiet"
	opTrip   = "trip"
	opRead   = "read"
	opCancel = "cancel"
)

// publisher does what is the API's part.
type publisher struct {
	nc *nats.Conn

	mu      sync.Mutex
	waiting map[string]chan struct{} // job id → its end
}

func servePublisher(ctx context.Context, cfg config, w *wire) error {
	nc, err := cfg.connect("publisher")
	if err != nil {
		return err
	}
	defer nc.Close()
	return runPublisher(ctx, nc, w, ready{})
}

// serveBareEmbedded is the publisher and its server in one process.
func serveBareEmbedded(ctx context.Context, cfg config, w *wire) error {
	srv, err := startServer(ctx, cfg)
	if err != nil {
		return err
	}
	defer srv.Stop()
	nc, err := srv.Connect("publisher")
	if err != nil {
		return err
	}
	defer nc.Close()
	return runPublisher(ctx, nc, w, ready{NATS: srv.URL()})
}

func runPublisher(ctx context.Context, nc *nats.Conn, w *wire, r ready) error {
	p := &publisher{nc: nc, waiting: make(map[string]chan struct{})}
	return w.ready(r, func(o order) (sample, error) { return p.do(ctx, o) })
}

func (p *publisher) do(ctx context.Context, o order) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	switch o.Op {
	case opSubmit:
		return p.submits(ctx, o, job.Normal)
	case opQuiet:
		return p.submits(ctx, o, job.LowPriority)
	case opTrip:
		return p.trips(ctx, o)
	case opRead:
		return p.reads(ctx, o)
	case opCancel:
		return p.cancels(ctx, o)
	}
	return noOrders(o)
}

func (p *publisher) submits(ctx context.Context, o order, class job.Class) (sample, error) {
	return load(ctx, o.N, o.Callers, func(ctx context.Context, _ int) error {
		_, err := p.submit(ctx, queue.NewID(job.Async), class)
		return err
	})
}

func (p *publisher) submit(ctx context.Context, id job.ID, class job.Class) (uint64, error) {
	return write(ctx, p.nc, bareMessage(streams.JobSubject(bareEndpoint, class, id)), 0)
}

// trips submits jobs and waits for their end, which one subscription brings.
func (p *publisher) trips(ctx context.Context, o order) (sample, error) {
	sub, err := p.nc.Subscribe(streams.Moved(bareEndpoint, "*"), p.hear)
	if err != nil {
		return sample{}, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is gone then
	if err := p.nc.FlushWithContext(ctx); err != nil {
		return sample{}, err
	}
	return load(ctx, o.N, o.Callers, func(ctx context.Context, _ int) error {
		id, end := queue.NewID(job.Async), make(chan struct{}, 1)
		p.mu.Lock()
		p.waiting[string(id)] = end
		p.mu.Unlock()
		if _, err := p.submit(ctx, id, job.Normal); err != nil {
			return err
		}
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for job %s: %w", id, ctx.Err())
		}
	})
}

func (p *publisher) hear(m *nats.Msg) {
	if m.Header.Get(bareStatus) == "" {
		return
	}
	id := strings.Split(m.Subject, ".")[2]
	p.mu.Lock()
	defer p.mu.Unlock()
	if end := p.waiting[id]; end != nil {
		end <- struct{}{}
		delete(p.waiting, id)
	}
}

// reads asks the leader for one record again and again.
func (p *publisher) reads(ctx context.Context, o order) (sample, error) {
	m := bareRecord(queue.NewID(job.Async))
	if _, err := write(ctx, p.nc, m, 0); err != nil {
		return sample{}, err
	}
	body := fmt.Appendf(nil, `{"last_by_subj":%q}`, m.Subject)
	return load(ctx, o.N, o.Callers, func(ctx context.Context, _ int) error {
		_, err := p.nc.RequestWithContext(ctx, bus.LeaderGet(streams.Records(0)), body)
		return err
	})
}

// cancels times one record write and one delete by sequence of waiting jobs.
func (p *publisher) cancels(ctx context.Context, o order) (sample, error) {
	ids, seqs := make([]job.ID, o.N), make([]uint64, o.N)
	const atOnce = 64
	if _, err := load(ctx, o.N, atOnce, func(ctx context.Context, i int) (err error) {
		ids[i] = queue.NewID(job.Async)
		seqs[i], err = p.submit(ctx, ids[i], job.LowPriority)
		return err
	}); err != nil {
		return sample{}, err
	}
	return load(ctx, o.N, o.Callers, func(ctx context.Context, i int) error {
		if _, err := write(ctx, p.nc, bareRecord(ids[i]), 0); err != nil {
			return err
		}
		return deleteSeq(ctx, p.nc, streams.Jobs(bareEndpoint), seqs[i])
	})
}

func deleteSeq(ctx context.Context, nc *nats.Conn, stream string, seq uint64) error {
	_, err := nc.RequestWithContext(ctx, bus.MsgDelete(stream), fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq))
	return err
}

// bareWithin bounds what the consumer does with one job.
const bareWithin = 20 * time.Second

// serveConsumer does what is the worker's part, from as many slots.
func serveConsumer(ctx context.Context, cfg config, w *wire) error {
	nc, err := cfg.connect("consumer")
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for range cfg.Slots {
		g.Go(func() error { return consume(ctx, nc) })
	}
	err = w.ready(ready{}, noOrders)
	stop()
	return errors.Join(err, g.Wait())
}

// consume fetches a job, writes its two records and acks it, again and again.
func consume(ctx context.Context, nc *nats.Conn) error {
	f, err := newFetcher(nc, bareEndpoint)
	if err != nil {
		return err
	}
	defer f.close()
	for {
		m, err := f.next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = bareRun(ctx, nc, m)
		}
		if err != nil {
			return err
		}
	}
}

func bareRun(ctx context.Context, nc *nats.Conn, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, bareWithin)
	defer cancel()
	id := streams.JobOf(m.Subject)
	picked := bareRecord(id)
	picked.Header.Set(jetstream.ScheduleHeader, "@every 60s")
	picked.Header.Set(jetstream.ScheduleTargetHeader, streams.DueSubject(0, bareEndpoint, id, 1))
	picked.Header.Set(jetstream.ScheduleTTLHeader, streams.DueTTL())
	seq, err := write(ctx, nc, picked, 0)
	if err != nil {
		return err
	}
	ended := bareRecord(id)
	ended.Header.Set(bareStatus, "COMPLETED")
	if _, err := write(ctx, nc, ended, seq); err != nil {
		return err
	}
	return nc.Publish(m.Reply, []byte("+ACK"))
}

// fetcher pulls one message at a time on an inbox that it keeps.
type fetcher struct {
	nc      *nats.Conn
	subject string
	inbox   string
	sub     *nats.Subscription
	expires time.Duration
}

func newFetcher(nc *nats.Conn, endpoint string) (*fetcher, error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	return &fetcher{
		nc: nc, inbox: inbox, sub: sub, expires: 5 * time.Second,
		subject: bus.PullNext(streams.Jobs(endpoint), streams.Consumer(job.Normal)),
	}, nil
}

func (f *fetcher) close() { _ = f.sub.Unsubscribe() }

// next waits for a message.
func (f *fetcher) next(ctx context.Context) (*nats.Msg, error) {
	for {
		body := fmt.Appendf(nil, `{"batch":1,"expires":%d}`, f.expires.Nanoseconds())
		if err := f.nc.PublishRequest(f.subject, f.inbox, body); err != nil {
			return nil, err
		}
		m, err := f.sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		if m.Header.Get("Status") == "" {
			return m, nil
		}
	}
}
