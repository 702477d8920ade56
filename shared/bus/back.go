package bus

import (
	"context"

	"github.com/nats-io/nats.go"
)

// Back says which messages of a stream Backwards reads.
type Back struct {
	// Stream is the stream's direct-get subject.
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
	// backProbes is how many requests are under way at a time, backSplit into
	// how many parts they cut a range.
	backProbes, backSplit = 64, 16
	// backRounds bounds the trips of one call to Backwards.
	backRounds = 32
)

// Backwards reads the newest messages before a sequence, the newest first.
// It asks for single messages, many at a time, since a
// batch read lets the server count all that lies ahead, which in a stream with
// one message a subject means every subject there is. What it costs depends on
// Most and the logarithm of the stream's length, not on the length.
//
// All messages from next on, and before Back.Before, were returned; there may
// be fewer than Most because the trips were used up. next 0 means that there
// are no more. Any replica may answer. It returns ErrNoAnswer when JetStream is
// away, and ctx.Err().
func Backwards(ctx context.Context, nc *nats.Conn, b Back) (found []*nats.Msg, next uint64, err error) {
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
	for round := 0; round < backRounds && unknown(known, b.Most); round++ {
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

// unknown reports whether anything unknown lies before the nth message.
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

// newest takes the messages that nothing unknown lies before.
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
