package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/streams"
)

// write is one write of a record as it is on the bus. It is read with this
// package's own eyes, not with those of package queue.
type write struct {
	seq      uint64
	expect   uint64 // the sequence that the write wanted to replace
	checked  bool   // whether it wanted any
	endpoint string
	job      string
	attempt  int
	at       time.Time // when the server stored it
	seen     time.Time // when it was first seen here
	recordHead
}

// recordHead is what the audit needs of the header of a record.
type recordHead struct {
	Status    string `json:"status"`
	Run       int    `json:"run"`
	Lost      int    `json:"lost"`
	Submitted int64  `json:"submitted"` // Unix milliseconds, as all instants
	Started   int64  `json:"started"`
	Finished  int64  `json:"finished"`
	Expires   int64  `json:"expires"`
	Retained  int64  `json:"retainUntil"`
	Worker    string `json:"worker"`
	Detached  bool   `json:"detached"`
}

// The names of the headers: part of the form of a record.
const (
	headHeader   = "Flightline-Job"
	expectHeader = "Nats-Expected-Last-Subject-Sequence"
)

// observer keeps every write of every record. A record's old values vanish
// when it is overwritten, so it listens to their repetition; that may miss
// some while the connection is away, so it also reads the stream, which holds
// the newest of each.
type observer struct {
	nc     *nats.Conn
	stop   context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	writes map[uint64]write
	heads  map[string]write // the newest write of each job
	faults []string
}

// observe begins to observe.
func observe(ctx context.Context, url string) (*observer, error) {
	nc, err := bus.Connect(bus.Config{URL: url, User: busUser, Password: busPassword, Name: "observer"})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	o := &observer{nc: nc, stop: stop, done: make(chan struct{}), writes: map[uint64]write{}, heads: map[string]write{}}
	if _, err := nc.Subscribe(streams.Moved("*", "*"), o.repeated); err != nil {
		nc.Close()
		stop()
		return nil, fmt.Errorf("observe: %w", err)
	}
	go o.follow(ctx) // ends in close
	return o, nil
}

func (o *observer) close() {
	o.stop()
	<-o.done
	o.nc.Close()
}

// repeated takes a write from the repetition.
func (o *observer) repeated(m *nats.Msg) {
	seq, _ := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil || seq == 0 {
		o.fault("a repetition without sequence or time: %v", m.Header)
		return
	}
	o.note(m.Header, m.Header.Get("Nats-Subject"), seq, at)
}

// follow reads the stream from where it last was, whatever happens to the bus.
func (o *observer) follow(ctx context.Context) {
	defer close(o.done)
	js, err := jetstream.New(o.nc)
	if err != nil {
		o.fault("observe: %v", err)
		return
	}
	for next := uint64(1); ctx.Err() == nil; wait(ctx, again) {
		cfg := jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{streams.AnyAttempt(0, "*", "*")},
			HeadersOnly:    true, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
		}
		consumer, err := js.OrderedConsumer(ctx, streams.Records(0), cfg)
		if err != nil {
			continue
		}
		messages, err := consumer.Messages()
		if err != nil {
			continue
		}
		release := context.AfterFunc(ctx, messages.Stop)
		for {
			m, err := messages.Next()
			if err != nil {
				break
			}
			meta, err := m.Metadata()
			if err != nil {
				continue
			}
			o.note(m.Headers(), m.Subject(), meta.Sequence.Stream, meta.Timestamp)
			next = meta.Sequence.Stream + 1
		}
		release()
		messages.Stop()
	}
}

func (o *observer) note(header nats.Header, subject string, seq uint64, at time.Time) {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 4 {
		o.fault("a record without a name: %q", subject)
		return
	}
	w := write{seq: seq, endpoint: tokens[len(tokens)-3], job: tokens[len(tokens)-2], at: at, seen: time.Now()}
	var err error
	if w.attempt, err = strconv.Atoi(tokens[len(tokens)-1]); err != nil {
		o.fault("%s: attempt: %v", subject, err)
	}
	if err := json.Unmarshal([]byte(header.Get(headHeader)), &w.recordHead); err != nil {
		o.fault("%s: header: %v", subject, err)
	}
	if text := header.Get(expectHeader); text != "" {
		w.checked = true
		w.expect, _ = strconv.ParseUint(text, 10, 64)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.writes[seq]; known {
		return
	}
	o.writes[seq] = w
	head, known := o.heads[w.job]
	if !known || w.attempt > head.attempt || w.attempt == head.attempt && w.seq > head.seq {
		o.heads[w.job] = w
	}
}

func (o *observer) fault(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

// undecided counts jobs whose newest record is neither terminal nor expired.
func (o *observer) undecided() []write {
	o.mu.Lock()
	defer o.mu.Unlock()
	var left []write
	for _, w := range o.heads {
		if !terminal(w.Status) && time.Now().UnixMilli() < w.Expires {
			left = append(left, w)
		}
	}
	return left
}

// isOver reports whether an attempt is over as far as its records tell: it is
// decided, or the ttl of its job has passed.
func (o *observer) isOver(id string, attempt int) (over, decided bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, known := o.heads[id]
	decided = known && (w.attempt > attempt || w.attempt == attempt && terminal(w.Status))
	return decided || known && w.Expires <= time.Now().UnixMilli(), decided
}

// attemptOf reads the attempt from the header of a queue message, 0 if it is
// not there.
func attemptOf(header nats.Header) int {
	var head struct {
		Attempt int `json:"attempt"`
	}
	if json.Unmarshal([]byte(header.Get(headHeader)), &head) != nil {
		return 0
	}
	return head.Attempt
}

// history is what was observed, by sequence.
func (o *observer) history() ([]write, []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []write
	for _, w := range o.writes {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b write) int { return int(a.seq) - int(b.seq) }) //nolint:gosec // far from overflow
	return all, slices.Clone(o.faults)
}

// The statuses, as the contract spells them.
const (
	inQueue    = "IN_QUEUE"
	inProgress = "IN_PROGRESS"
	completed  = "COMPLETED"
	failed     = "FAILED"
	timedOut   = "TIMED_OUT"
	cancelled  = "CANCELLED"
)

func terminal(status string) bool {
	switch status {
	case completed, failed, timedOut, cancelled:
		return true
	}
	return false
}
