package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/streams"
)

const (
	// firstTriesMost is how many deliveries a message of the log has at most,
	// firstTriesBytes about how large it may be.
	firstTriesMost, firstTriesBytes = 1024, 256 << 10
	// slotsKept is how many subjects of the log are remembered.
	slotsKept = 32
)

// firstTry is a delivery that succeeded at once, as a message of several has it.
type firstTry struct {
	Job     job.ID        `json:"job"`
	Attempt int           `json:"attempt"`
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took"`
	URL     string        `json:"url"`
	Status  int           `json:"status"`
	Answer  string        `json:"answer,omitempty"`
}

// firstTrySubject is where the delivery may be logged with others: a success at
// the first try is no news to a log that has nothing of its completion, so that
// no compare-and-set is needed. It is "" for any other.
func (l *Logged) firstTrySubject() string {
	if l.Try != 1 || l.After != 0 || l.Replay != "" || l.Outcome != Delivered || l.Error != "" {
		return ""
	}
	return streams.FirstTriesSubject(l.Endpoint, l.Job)
}

// size is more than the delivery takes in a message.
func (l *Logged) size() int { return 256 + 6*(len(l.URL)+len(l.Answer)) }

// firstTriesMessage has those of the list at some places.
func firstTriesMessage(subject string, list []Logged, places []int) (*nats.Msg, error) {
	var err error
	data := make([]byte, 0, 256*len(places))
	for _, at := range places {
		data = append(data, ',')
		if data, err = list[at].appendFirstTry(data); err != nil {
			return nil, fmt.Errorf("log %d deliveries: %w", len(places), err)
		}
	}
	data[0] = '['
	return &nats.Msg{Subject: subject, Data: append(data, ']')}, nil
}

// appendFirstTry writes a firstTry.
func (d *Delivery) appendFirstTry(b []byte) (_ []byte, err error) {
	b = append(append(b, `{"job":"`...), d.Job...)
	b = strconv.AppendInt(append(b, `","attempt":`...), int64(d.Attempt), 10)
	b = append(d.Started.AppendFormat(append(b, `,"started":"`...), time.RFC3339Nano), '"')
	b = strconv.AppendInt(append(b, `,"took":`...), int64(d.Took), 10)
	if b, err = appendText(append(b, `,"url":`...), d.URL); err != nil {
		return b, err
	}
	b = strconv.AppendInt(append(b, `,"status":`...), int64(d.Status), 10)
	if d.Answer != "" {
		b, err = appendText(append(b, `,"answer":`...), d.Answer)
	}
	return append(b, '}'), err
}

func appendFirstTries(to []Delivery, endpoint string, data []byte, seq uint64) ([]Delivery, error) {
	var all []firstTry
	if err := json.Unmarshal(data, &all); err != nil {
		return to, fmt.Errorf("read deliveries of %s: %w", endpoint, err)
	}
	for i, d := range all {
		to = append(to, Delivery{
			Endpoint: endpoint, Job: d.Job, Attempt: d.Attempt, Try: 1, Outcome: Delivered,
			Started: d.Started, Took: d.Took, URL: d.URL, Status: d.Status, Answer: d.Answer, Seq: seq, Index: i,
		})
	}
	return to, nil
}

// eachFirstTry reads a FirstTriesSubject from a sequence on.
func (q *Queue) eachFirstTry(ctx context.Context, subject string, from uint64, each func(Delivery)) error {
	endpoint, _ := streams.ParseFirstTries(subject)
	var list []Delivery
	return q.eachLogged(ctx, subject, from, 1<<52, func(m *nats.Msg) (err error) {
		list, err = appendFirstTries(list[:0], endpoint, m.Data, bus.Sequence(m))
		for _, d := range list {
			each(d)
		}
		return err
	})
}

// firstTries finds completions in the log of those that succeeded at once. It
// remembers what it read: after a crash many are looked for, all in few places.
type firstTries struct {
	q     *Queue
	mu    sync.Mutex
	slots map[string]*slotRead // by FirstTriesSubject
}

// slotRead is a subject of the log as far as it was read.
type slotRead struct {
	last uint64
	has  map[tried]uint64 // the sequence
}

type tried struct {
	id      job.ID
	attempt int
}

func newFirstTries(q *Queue) *firstTries { return &firstTries{q: q, slots: map[string]*slotRead{}} }

// find is the delivery of the completion, the zero Delivery if there was none.
func (f *firstTries) find(ctx context.Context, c *Completion) (Delivery, error) {
	subject := streams.FirstTriesSubject(c.Job.Endpoint, c.Job.ID)
	if subject == "" || c.Replay != "" {
		return Delivery{}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	slot, ok := f.slots[subject]
	if !ok {
		if len(f.slots) >= slotsKept {
			clear(f.slots)
		}
		slot = &slotRead{has: map[tried]uint64{}}
		f.slots[subject] = slot
	}
	key := tried{c.Job.ID, c.Job.Attempt}
	if _, ok := slot.has[key]; !ok {
		err := f.q.eachFirstTry(ctx, subject, slot.last+1, func(d Delivery) {
			slot.last, slot.has[tried{d.Job, d.Attempt}] = d.Seq, d.Seq
		})
		if err != nil {
			return Delivery{}, err
		}
	}
	seq, ok := slot.has[key]
	if !ok {
		return Delivery{}, nil
	}
	return Delivery{Endpoint: c.Job.Endpoint, Job: c.Job.ID, Attempt: c.Job.Attempt, Try: 1, Outcome: Delivered, Seq: seq}, nil
}
