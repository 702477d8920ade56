package admin

import (
	"cmp"
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

// copyLater writes the messages behind seq to w, each as a line of JSON, until the
// stream's leader has no more, and returns how many there were. It sits out that
// nobody answers, for catchUpTimeout at most, and returns then what was wrong at
// last, or errTooBusy. A stream that is no more is jetstream.ErrStreamNotFound.
func copyLater(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, stream string, seq uint64, w io.Writer) (n int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, catchUpTimeout, errTooBusy)
	defer cancel()
	out := json.NewEncoder(w)
	err = readPages(ctx, js, stream, catchUpTimeout, func(size int) (read int, err error) {
		page, err := bus.BatchGetOnce(ctx, nc, stream, bus.Batch{From: seq + 1, Filter: ">", Most: maxPageMessages, MaxBytes: size})
		if err != nil {
			return 0, err
		}
		for _, m := range page {
			message, err := messageOf(m)
			if err == nil {
				err = out.Encode(message)
			}
			if err != nil {
				return read, err
			}
			seq = message.Seq
			read++
		}
		if n += read; read > 0 {
			return read, nil
		}
		more, err := hasMore(ctx, nc, stream, seq)
		if err == nil && !more {
			err = errEnd
		}
		return 0, err
	})
	return n, err
}

// errEnd means that a stream has no more pages.
var errEnd = errors.New("the end of the stream")

// readPages calls page until that returns errEnd. page reads what comes next, of size bytes
// at most, and returns how many messages there were. That nobody answers is sat out, for
// patience at most. It returns what was wrong at last, or the cause of the end of ctx; a
// stream that is no more is jetstream.ErrStreamNotFound.
func readPages(ctx context.Context, js jetstream.JetStream, stream string, patience time.Duration, page func(size int) (int, error)) error {
	heard := time.Now()
	var last error
	for size := minPageBytes; ; {
		read, err := page(size)
		switch {
		case errors.Is(err, errEnd):
			return nil
		case ctx.Err() != nil:
			return cmp.Or(last, context.Cause(ctx))
		case err == nil && read > 0:
			heard, size, last = time.Now(), min(2*size, pageBytes), nil
			continue
		case err == nil: // the replica that was asked lags, or the next ones cannot be read
		case !bearable(err):
			return err
		case deleted(ctx, js, stream):
			return jetstream.ErrStreamNotFound
		default:
			size, last = max(size/2, minPageBytes), fmt.Errorf("no answer for %v: %w", time.Since(heard).Round(time.Second), err)
			if time.Since(heard) > patience {
				return last
			}
		}
		_ = retry.Sleep(ctx, retryDelay) // the next page fails if ctx has ended
	}
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
	for m, err := range laterMessages(stream, &stoppable{ctx, r}) {
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
