package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Back says which messages of a stream Backwards reads.
type Back struct {
	// Stream is the stream's name.
	Stream string
	// Filter is the subject, wildcards allowed, that a message must have. ">"
	// is the cheapest for a stream of which all is wanted.
	Filter string
	// First is the stream's first sequence; nothing before it is looked for.
	First uint64
	// Before is the sequence that all messages come before.
	Before uint64
	// Most bounds the number of messages; at least 1.
	Most int
	// Data keeps what the messages hold. Else they come with headers only, and
	// large ones take no memory.
	Data bool
}

const (
	// maxBackProbes is how many requests are under way at a time, backSplit into
	// how many parts they cut a range.
	maxBackProbes, backSplit = 64, 16
	// maxBackRounds bounds the trips of one call to Backwards.
	maxBackRounds = 32
)

// Backwards reads the newest messages before a sequence, the newest first.
// It asks for single messages, many at a time, since a
// batch read lets the server count all that follows, which in a stream with
// one message a subject means every subject there is. What it costs depends on
// Most and the logarithm of the stream's length, not on the length.
//
// All messages from next on, and before Back.Before, were returned; there may
// be fewer than Most because the trips were used up. next 0 means that there
// are no more. Any replica may answer. It returns ErrUnavailable if JetStream is
// away until ctx ends, and ctx.Err() if that was cancelled.
func (c *Client) Backwards(ctx context.Context, b Back) (found []*nats.Msg, next uint64, err error) {
	found, err = UntilAnswered(ctx, func() (got []*nats.Msg, err error) {
		got, next, err = backwardsOnce(ctx, c.nc, b)
		return got, err
	})
	return found, next, err
}

func backwardsOnce(ctx context.Context, nc *nats.Conn, b Back) (found []*nats.Msg, next uint64, err error) {
	b.First, b.Most = max(1, b.First), max(1, b.Most)
	if b.Before <= b.First {
		return nil, 0, nil
	}
	p, err := newProbes(nc, b)
	if err != nil {
		return nil, 0, err
	}
	defer p.close()
	known := begin(b)
	for round := 0; round < maxBackRounds && unknown(known, b.Most); round++ {
		if known, err = p.look(ctx, known, b.Most); err != nil {
			return nil, 0, err
		}
	}
	found, next = newest(known, b.Most)
	return found, next, nil
}

// begin is what is known before the first trip: nothing. The end of most
// streams is dense, so there are as many sequences there as messages are
// wanted, and more and more at a time behind them. The first sequence stands
// alone: a search that begins there makes the server look at all subjects.
func begin(b Back) []span {
	var known []span
	size := uint64(b.Most) //nolint:gosec // positive
	for to := b.Before; to > b.First+1; size *= backSplit {
		from := to - min(to-b.First-1, size)
		known = append(known, span{from: from, to: to, fresh: true})
		to = from
	}
	return append(known, span{from: b.First, to: b.First + 1, fresh: true})
}

// span is a message, or a range of sequences, to excluding, of which nothing
// is known. A fresh one is as likely to have messages as those before it.
type span struct {
	from, to uint64
	fresh    bool
	msg      *nats.Msg
}

// unknown reports whether anything unknown is before the nth message.
func unknown(known []span, n int) bool {
	for _, s := range known {
		if s.msg == nil {
			return true
		}
		if n--; n == 0 {
			return false
		}
	}
	return false
}

// newest takes the messages that nothing unknown precedes.
func newest(known []span, most int) (found []*nats.Msg, next uint64) {
	for i, s := range known {
		if s.msg == nil {
			return found, s.to
		}
		if found = append(found, s.msg); len(found) == most && i < len(known)-1 {
			return found, s.from
		}
	}
	return found, 0
}

// probes are requests for one message each.
type probes struct {
	nc      *nats.Conn
	back    Back
	inbox   string
	answers <-chan *nats.Msg
	close   func()
}

func newProbes(nc *nats.Conn, b Back) (*probes, error) {
	p := &probes{nc: nc, back: b, inbox: nc.NewInbox() + "."}
	var err error
	p.answers, p.close, err = listen(nc, p.inbox+"*", max(maxBackProbes, b.Most)+backSplit)
	return p, err
}

// look cuts the newest unknown spans into parts and asks for the first message
// of each part.
func (p *probes) look(ctx context.Context, known []span, most int) ([]span, error) {
	parts, rest := cut(known, most)
	first, err := p.ask(ctx, parts)
	if err != nil {
		return nil, err
	}
	next := make([]span, 0, len(parts)+len(known)-rest)
	for i, s := range parts {
		if s.msg != nil {
			next = append(next, s)
			continue
		}
		if first[i] == nil {
			continue
		}
		seq := Sequence(first[i])
		if seq < s.from || seq >= s.to {
			continue // nothing in this part
		}
		if seq+1 < s.to {
			next = append(next, span{from: seq + 1, to: s.to})
		}
		next = append(next, span{from: seq, to: seq + 1, msg: first[i]})
	}
	return append(next, known[rest:]...), nil
}

// cut returns the first spans of known, up to rest, with the unknown ones in
// parts: as many as may be asked about at once, and as are likely to have the
// messages that are wanted.
func cut(known []span, most int) (parts []span, rest int) {
	asked, expected := 0, 0
	for i, s := range known {
		if s.msg != nil {
			parts = append(parts, s)
			expected++
			continue
		}
		n, exact := partsOf(s, most)
		if asked > 0 && asked+n > max(maxBackProbes, most) || expected >= most {
			return parts, i
		}
		asked += n
		switch {
		case s.fresh:
			expected += n
		case exact:
			expected += (n + 1) / 2
		default:
			expected++
		}
		for j := n; j > 0; j-- {
			size, count := s.to-s.from, uint64(n) //nolint:gosec // positive
			part := uint64(j)
			parts = append(parts, span{from: s.from + size*(part-1)/count, to: s.from + size*part/count})
		}
	}
	return parts, len(known)
}

// partsOf is how many parts a span is cut into; exact: one for each sequence.
func partsOf(s span, most int) (n int, exact bool) {
	limit := uint64(backSplit)
	if s.fresh {
		limit = max(limit, uint64(most)) //nolint:gosec // positive
	}
	if size := s.to - s.from; size <= limit {
		return int(size), true //nolint:gosec // at most limit
	}
	return backSplit, false
}

// ask sends one request for each unknown part; nil stands for no message.
func (p *probes) ask(ctx context.Context, parts []span) ([]*nats.Msg, error) {
	waiting := 0
	for i, s := range parts {
		if s.msg != nil {
			continue
		}
		request := map[string]any{"seq": s.from, "next_by_subj": p.back.Filter}
		if s.to == s.from+1 { // the next one would be searched for in vain
			delete(request, "next_by_subj")
		}
		body, err := json.Marshal(request)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", p.back.Filter, err)
		}
		if err := p.nc.PublishRequest(DirectGet(p.back.Stream), p.inbox+strconv.Itoa(i), body); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		waiting++
	}
	within, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	first := make([]*nats.Msg, len(parts))
	for ; waiting > 0; waiting-- {
		m, err := receive(ctx, within, p.answers, p.back.Filter)
		if err != nil {
			return nil, err
		}
		i, err := strconv.Atoi(strings.TrimPrefix(m.Subject, p.inbox))
		if err != nil || i < 0 || i >= len(first) {
			return nil, fmt.Errorf("read %s: an answer to %q", p.back.Filter, m.Subject)
		}
		if first[i], err = p.answer(m); err != nil {
			return nil, err
		}
	}
	return first, nil
}

// answer is the message that m brings, or nil.
func (p *probes) answer(m *nats.Msg) (*nats.Msg, error) {
	switch err := directError(m, p.back.Filter); {
	case errors.Is(err, ErrNoMessage):
		return nil, nil //nolint:nilnil // no message
	case err != nil:
		return nil, err
	}
	if !p.back.Data {
		m.Data = nil
	}
	if !Covers(p.back.Filter, SubjectOf(m)) {
		return nil, nil //nolint:nilnil // it is another's
	}
	return m, nil
}

// Sequence is the stream sequence of a message that was read, SubjectOf its subject, and
// StoredAt the server's time when it was stored. The server's headers follow those that the
// message was stored with, which may have the same names.
func Sequence(m *nats.Msg) uint64 { return headerNumber(m, jetstream.SequenceHeader) }

// SubjectOf is the subject of a message that was read; see Sequence.
func SubjectOf(m *nats.Msg) string { return lastValue(m.Header, jetstream.SubjectHeader) }

// StoredAt is when a message that was read was stored; see Sequence.
func StoredAt(m *nats.Msg) (time.Time, error) {
	return time.Parse(time.RFC3339Nano, lastValue(m.Header, jetstream.TimeStampHeaer))
}

// headerNumber is the number that the server wrote into a header, 0 if it wrote none.
func headerNumber(m *nats.Msg, header string) uint64 {
	n, _ := strconv.ParseUint(lastValue(m.Header, header), 10, 64)
	return n
}

// Covers reports whether a filter, with * and > as NATS has them, lets a subject pass; of
// a subject with wildcards, whether it does so with all that match it.
func Covers(filter, subject string) bool {
	for {
		f, filterRest, moreFilter := strings.Cut(filter, ".")
		s, subjectRest, moreSubject := strings.Cut(subject, ".")
		switch {
		case f == ">":
			return true
		case s == ">", f != "*" && f != s, moreFilter != moreSubject:
			return false
		case !moreFilter:
			return true
		}
		filter, subject = filterRest, subjectRest
	}
}
