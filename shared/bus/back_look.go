package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

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
	p.answers, p.close, err = listen(nc, p.inbox+"*", max(backProbes, b.Most)+backSplit)
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
		if asked > 0 && asked+n > max(backProbes, most) || expected >= most {
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
		if err := p.nc.PublishRequest(p.back.Stream, p.inbox+strconv.Itoa(i), body); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
		waiting++
	}
	within, cancel := context.WithTimeout(ctx, batchWithin)
	defer cancel()
	first := make([]*nats.Msg, len(parts))
	for ; waiting > 0; waiting-- {
		m, err := nextOf(ctx, within, p.answers, p.back.Filter)
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
	switch status := m.Header.Get("Status"); status {
	case "":
		if !p.back.Data {
			m.Data = nil
		}
		if !matches(p.back.Filter, m.Header.Get("Nats-Subject")) {
			return nil, nil //nolint:nilnil // it is another's
		}
		return m, nil
	case "404":
		return nil, nil //nolint:nilnil // no message
	case "503":
		return nil, fmt.Errorf("%w: read %s", ErrNoAnswer, p.back.Filter)
	default:
		return nil, fmt.Errorf("read %s: %s %s", p.back.Filter, status, m.Header.Get("Description"))
	}
}

// Sequence is where a message that was read lies in its stream.
func Sequence(m *nats.Msg) uint64 {
	seq, _ := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64) // the server wrote it
	return seq
}

// matches reports whether a filter, with * and > as NATS has them, lets a
// subject pass.
func matches(filter, subject string) bool {
	for {
		f, filterRest, moreFilter := strings.Cut(filter, ".")
		s, subjectRest, moreSubject := strings.Cut(subject, ".")
		switch {
		case f == ">":
			return true
		case f != "*" && f != s, moreFilter != moreSubject:
			return false
		case !moreFilter:
			return true
		}
		filter, subject = filterRest, subjectRest
	}
}
