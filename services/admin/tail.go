package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/retry"
)

const (
	// maxPageMessages is how many messages are read at once, pageBytes how large they
	// may be together. A page that does not come in time is asked for again, half
	// as large, down to minPageBytes.
	maxPageMessages, pageBytes, minPageBytes = 500, 8 << 20, 64 << 10
	// catchUpTimeout bounds reading what writers go on to write.
	catchUpTimeout = 5 * time.Minute
)

// errTooBusy means that a stream is written to faster than it can be read.
var errTooBusy = errors.New("it is written to faster than it can be read; try again when there is less load")

// message was written to a stream while it was copied.
type message struct {
	Seq     uint64              `json:"seq"`
	Subject string              `json:"subject"`
	Time    time.Time           `json:"time"`
	Header  map[string][]string `json:"header,omitempty"`
	Body    []byte              `json:"body,omitempty"`
}

// copyTail writes the messages behind seq to w, each as a line of JSON, until the
// stream's leader has no more, and returns how many there were. It sits out that
// nobody answers, for catchUpTimeout at most, and returns then what was wrong at
// last, or errTooBusy. A stream that is no more is jetstream.ErrStreamNotFound.
func copyTail(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, stream string, seq uint64, w io.Writer) (n int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, catchUpTimeout, errTooBusy)
	defer cancel()
	c := &streamCopier{nc: nc, stream: stream, seq: seq, out: json.NewEncoder(w)}
	var last error
	for size := pageBytes; ; {
		read, err := c.page(ctx, size)
		n += read
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case ctx.Err() != nil:
			if last != nil {
				return n, fmt.Errorf("no answer for %v: %w", catchUpTimeout, last)
			}
			return n, context.Cause(ctx)
		case err == nil && read > 0:
			size, last = min(2*size, pageBytes), nil
			continue
		case err == nil: // the replica that was asked lags
		case !bearable(err):
			return n, err
		case deleted(ctx, js, stream):
			return n, jetstream.ErrStreamNotFound
		default:
			size, last = max(size/2, minPageBytes), err
		}
		_ = retry.Sleep(ctx, retryDelay) // the next page fails if ctx has ended
	}
}

// streamCopier is where a reading of a stream is.
type streamCopier struct {
	nc     *nats.Conn
	stream string
	seq    uint64 // of the last message that was read
	out    *json.Encoder
}

// page reads what comes next, of this size at most, and returns how many
// messages there were: io.EOF if there are no more.
func (c *streamCopier) page(ctx context.Context, size int) (read int, err error) {
	page, err := bus.BatchGetOnce(ctx, c.nc, c.stream, bus.Batch{From: c.seq + 1, Filter: ">", Most: maxPageMessages, MaxBytes: size})
	if err != nil {
		return 0, err
	}
	for _, m := range page {
		message, err := messageOf(m)
		if err != nil {
			return read, err
		}
		if err := c.out.Encode(message); err != nil {
			return read, err
		}
		c.seq = message.Seq
		read++
	}
	if read > 0 {
		return read, nil
	}
	more, err := hasMore(ctx, c.nc, c.stream, c.seq)
	if err == nil && !more {
		err = io.EOF
	}
	return 0, err
}

// bearable reports whether nobody answered, as in an election or on a slow line.
// A read may be repeated.
func bearable(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && refused.Code == http.StatusServiceUnavailable ||
		errors.Is(err, bus.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrReconnectBufExceeded) || nobodyThere(err)
}

// deleted reports whether the stream is known to be gone.
func deleted(ctx context.Context, js jetstream.JetStream, stream string) bool {
	asked, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := js.Stream(asked, stream)
	return errors.Is(err, jetstream.ErrStreamNotFound)
}

// hasMore asks the stream's leader whether there is a message behind seq.
func hasMore(ctx context.Context, nc *nats.Conn, stream string, seq uint64) (bool, error) {
	var answer struct{}
	err := request(ctx, nc, bus.LeaderGet(stream), map[string]any{"seq": seq + 1, "next_by_subj": ">"}, &answer)
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return false, nil
	}
	return err == nil, err
}

// messageOf takes a directly read message apart. The headers of the read, and
// those that were for the first write alone, do not belong to it.
func messageOf(m *nats.Msg) (message, error) {
	read := message{Subject: bus.SubjectOf(m), Seq: bus.Sequence(m), Body: m.Data, Header: map[string][]string{}}
	var err error
	if read.Time, err = bus.StoredAt(m); err != nil {
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
// has nothing as new. A message with a ttl keeps what is left of it by the clock of the server.
func replay(ctx context.Context, js jetstream.JetStream, stream string, r io.Reader) (written int, err error) {
	s, err := settled(ctx, js, stream)
	if err != nil {
		return 0, err
	}
	for m, err := range tailMessages(stream, &stoppable{ctx, r}) {
		if err != nil {
			return written, err
		}
		if m.Seq <= s.CachedInfo().State.LastSeq {
			var there *jetstream.RawStreamMsg
			err := untilAnswered(ctx, func() (err error) {
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
		// What a schedule made says so, which the server takes from nobody else.
		again.Header.Del(jetstream.SchedulerHeader)
		again.Header.Del(jetstream.ScheduleNextHeader)
		if !ttlLeft(again.Header, s.CachedInfo().TimeStamp.Sub(m.Time)) {
			continue
		}
		err = untilAnswered(ctx, func() error { _, err := js.PublishMsg(ctx, again); return err })
		if err != nil {
			return written, fmt.Errorf("write %s: %w", m.Subject, err)
		}
		written++
	}
	return written, nil
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
