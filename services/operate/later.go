package operate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/streams"
)

const (
	// pageMost is how many messages are read at once.
	pageMost = 500
	// catchUpWithin bounds the chase after writers.
	catchUpWithin = 5 * time.Minute
)

// errTooBusy means that a stream is written to faster than it can be read.
var errTooBusy = errors.New("it is written to faster than it can be read; try again when there is less load")

// message is one that was written to a stream while it was copied.
type message struct {
	Seq     uint64              `json:"seq"`
	Subject string              `json:"subject"`
	Time    time.Time           `json:"time"`
	Header  map[string][]string `json:"header,omitempty"`
	Body    []byte              `json:"body,omitempty"`
}

// later writes the messages behind seq to w, each as a line of JSON, until the
// stream's leader has no more, and returns how many there were.
func later(ctx context.Context, nc *nats.Conn, stream string, seq uint64, w io.Writer) (n int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, catchUpWithin, errTooBusy)
	defer cancel()
	out := json.NewEncoder(w)
	for {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		page, err := bus.BatchGet(ctx, nc, streams.DirectGet(stream), bus.Batch{From: seq + 1, Filter: ">", Most: pageMost, MaxBytes: 8 << 20})
		if err != nil {
			return n, err
		}
		for _, m := range page {
			read, err := messageOf(m)
			if err != nil {
				return n, err
			}
			if err := out.Encode(read); err != nil {
				return n, err
			}
			seq = read.Seq
			n++
		}
		if len(page) > 0 {
			continue
		}
		more, err := hasMore(ctx, nc, stream, seq)
		if err != nil || !more {
			return n, err
		}
		select { // the replica that was asked lags
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
}

// hasMore asks the stream's leader whether there is a message behind seq.
func hasMore(ctx context.Context, nc *nats.Conn, stream string, seq uint64) (bool, error) {
	var answer struct{}
	err := request(ctx, nc, streams.LeaderGet(stream), map[string]any{"seq": seq + 1, "next_by_subj": ">"}, &answer)
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return false, nil
	}
	return err == nil, err
}

// messageOf takes a directly read message apart. The headers of the read, and
// those that were for the first write alone, do not belong to it.
func messageOf(m *nats.Msg) (message, error) {
	read := message{Subject: m.Header.Get(jetstream.SubjectHeader), Body: m.Data, Header: map[string][]string{}}
	var err error
	if read.Seq, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err != nil {
		return read, fmt.Errorf("read sequence: %w", err)
	}
	if read.Time, err = time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer)); err != nil {
		return read, fmt.Errorf("read time: %w", err)
	}
	for name, values := range m.Header {
		switch name {
		case jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer, jetstream.StreamHeader,
			jetstream.LastSequenceHeader, "Nats-Num-Pending", "Nats-UpTo-Sequence", jetstream.MsgIDHeader,
			"Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit":
			continue
		}
		if !strings.HasPrefix(name, "Nats-Expected-") {
			read.Header[name] = values
		}
	}
	return read, nil
}

// replay writes what the copy lacks of the messages in r: those whose subject
// has nothing as new. A message with a ttl keeps what is left of it.
func replay(ctx context.Context, js jetstream.JetStream, stream string, r io.Reader) (written int, err error) {
	s, err := settled(ctx, js, stream)
	if err != nil {
		return 0, err
	}
	in := json.NewDecoder(bufio.NewReaderSize(r, 1<<20))
	for {
		var m message
		if err := in.Decode(&m); errors.Is(err, io.EOF) {
			return written, nil
		} else if err != nil {
			return written, fmt.Errorf("%w: %s: %w", ErrArchive, laterFile(stream), err)
		}
		if m.Seq <= s.CachedInfo().State.LastSeq {
			var there *jetstream.RawStreamMsg
			err := patiently(ctx, func() (err error) {
				there, err = s.GetMsg(ctx, m.Seq)
				return err
			})
			if err == nil && there.Subject == m.Subject {
				continue
			}
			if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
				return written, err
			}
		}
		again := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Body}
		if !ttlLeft(again.Header, time.Since(m.Time)) {
			continue
		}
		err := patiently(ctx, func() error { _, err := js.PublishMsg(ctx, again); return err })
		if err != nil {
			return written, fmt.Errorf("write %s: %w", m.Subject, err)
		}
		written++
	}
}

// ttlLeft lowers the ttl of a message by its age; false means that it is over.
func ttlLeft(h nats.Header, age time.Duration) bool {
	text := h.Get(jetstream.MsgTTLHeader)
	ttl, err := time.ParseDuration(text)
	if err != nil {
		seconds, err := strconv.Atoi(text)
		if err != nil {
			return true // none, or never
		}
		ttl = time.Duration(seconds) * time.Second
	}
	left := (ttl - age).Truncate(time.Second)
	if left < time.Second {
		return false
	}
	h.Set(jetstream.MsgTTLHeader, left.String())
	return true
}
