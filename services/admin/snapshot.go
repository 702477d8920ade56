package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/retry"
)

const (
	// chunkSize is how much of a copy travels in a message, windowSize how much
	// of it may be under way.
	chunkSize, windowSize = 128 << 10, 8 << 20
	// stallTimeout is how long a chunk or its acknowledgement may take.
	stallTimeout = 30 * time.Second
	// rebuildTimeout is how long the server may take to make a stream of the chunks: it
	// unpacks and indexes all of them before it answers the last.
	rebuildTimeout = 30 * time.Minute
)

var (
	// errStalled means that the server stopped in the middle of a copy.
	errStalled = errors.New("the server stopped answering")
	errGaveUp  = errors.New("the server gave up")
)

// brokenOff reports whether another try of a copy may succeed.
func brokenOff(err error) bool {
	return errors.Is(err, errStalled) || errors.Is(err, errGaveUp) || bearable(err)
}

// request asks the server's API and decodes its answer, which may take as long
// as stallTimeout; an error in it is an error of the call.
func request(ctx context.Context, nc *nats.Conn, subject string, question, answer any) error {
	return requestFor(ctx, stallTimeout, nc, subject, question, answer)
}

// requestFor is request that waits as long as bound.
func requestFor(ctx context.Context, bound time.Duration, nc *nats.Conn, subject string, question, answer any) error {
	var data []byte // none is the empty message that ends a copy
	if question != nil {
		var err error
		if data, err = json.Marshal(question); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	}
	within, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	m, err := nc.RequestWithContext(within, subject, data)
	if err != nil {
		return err
	}
	return decode(m.Data, answer)
}

func decode(data []byte, answer any) error {
	var failed struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &failed); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	return json.Unmarshal(data, answer)
}

// described is what the server says of a stream in its API.
type described struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

// lacksConsumer reports whether the server gave up since no server answered for one
// consumer of the stream. A consumer without replicas is on one server, which may be away.
func lacksConsumer(err error) bool {
	return errors.Is(err, errGaveUp) && strings.Contains(err.Error(), "failed to get consumer state")
}

// snapshot writes the server's copy of the stream to w, with its consumers or without.
// The state it returns is from before the copy began. The server's answer and each chunk
// may take as long as patience.
func snapshot(ctx context.Context, nc *nats.Conn, stream string, consumers bool, patience time.Duration, w io.Writer) (described, int64, error) {
	var d described
	chunks := make(chan *nats.Msg, windowSize/chunkSize+16) // what may be under way, and the end
	inbox := nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, chunks)
	if err != nil {
		return d, 0, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails with the connection, and takes it along
	question := map[string]any{"deliver_subject": inbox, "no_consumers": !consumers, "chunk_size": chunkSize, "window_size": windowSize}
	if err := requestFor(ctx, patience, nc, bus.StreamSnapshot(stream), question, &d); err != nil {
		return d, 0, err
	}
	size, err := receive(ctx, chunks, patience, w)
	return d, size, err
}

// receive writes the chunks until the empty message that ends them.
func receive(ctx context.Context, chunks <-chan *nats.Msg, patience time.Duration, w io.Writer) (size int64, err error) {
	for {
		select {
		case m := <-chunks:
			if len(m.Data) == 0 {
				return size, ended(m)
			}
			if _, err := w.Write(m.Data); err != nil {
				return size, err
			}
			size += int64(len(m.Data))
			if m.Reply != "" {
				if err := m.Respond(nil); err != nil {
					return size, err
				}
			}
		case <-time.After(patience):
			return size, errStalled
		case <-ctx.Done():
			return size, ctx.Err()
		}
	}
}

// ended is how the server says that the copy is complete, or why it is not.
func ended(m *nats.Msg) error {
	if status := m.Header.Get("Status"); status != "" && status != "204" {
		return fmt.Errorf("%w: %s %s", errGaveUp, status, m.Header.Get("Description"))
	}
	return nil
}

// restoreSnapshot makes the stream from the server's copy. The stream must not
// be there. The config may differ from that of the copy, by its replicas.
func restoreSnapshot(ctx context.Context, nc *nats.Conn, stream string, d described, r io.Reader) error {
	deliver, err := announce(ctx, stallTimeout, nc, bus.StreamRestore(stream), d)
	if err != nil {
		return err
	}
	chunk := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(r, chunk)
		if n > 0 {
			if err := sendChunk(ctx, nc, deliver, chunk[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return untilAnswered(ctx, func() error { return endCopy(ctx, nc, deliver) })
		}
		if err != nil {
			return err
		}
	}
}

// announce returns the subject for the chunks of a stream that is to be restored.
func announce(ctx context.Context, bound time.Duration, nc *nats.Conn, subject string, d described) (string, error) {
	var announced struct {
		Deliver string `json:"deliver_subject"` //nolint:tagliatelle // as NATS spells it
	}
	err := requestFor(ctx, bound, nc, subject, d, &announced)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // of a cluster any server may be chosen
		err = fmt.Errorf("no server of NATS began it within %s; all of a cluster have to run: %w", bound, err)
	}
	return announced.Deliver, err
}

// endCopy waits until the server has made the stream. It returns errStalled if
// the connection breaks meanwhile, with which the answer is lost.
func endCopy(ctx context.Context, nc *nats.Conn, subject string) error {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	broken := nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(broken)
	go func() {
		select {
		case <-broken:
			cancel(errStalled)
		case <-within.Done():
		}
	}()
	err := requestFor(within, rebuildTimeout, nc, subject, nil, &described{})
	if err != nil && errors.Is(context.Cause(within), errStalled) {
		return errStalled
	}
	return err
}

// sendChunk waits until the server has written the chunk; an answer that is not
// empty says why it did not.
func sendChunk(ctx context.Context, nc *nats.Conn, subject string, chunk []byte) error {
	within, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	var m *nats.Msg
	err := untilAnswered(within, func() (err error) {
		m, err = nc.RequestWithContext(within, subject, chunk)
		return err
	})
	if err != nil {
		return err
	}
	if len(m.Data) == 0 {
		return nil
	}
	return decode(m.Data, &described{})
}

const (
	// leaderTimeout is how long a cluster may take until all its servers know of
	// what was just made, and it has a leader.
	leaderTimeout = 30 * time.Second
	// retryDelay is the pause between two attempts.
	retryDelay = 100 * time.Millisecond
)

// untilAnswered calls do again while nobody is there to be asked: in a cluster other
// servers learn a moment later of what one of them has made, and a new stream
// has no leader at first. What was asked of nobody was not done, so it may be
// repeated.
func untilAnswered(ctx context.Context, do func() error) error {
	return until(ctx, nobodyThere, do)
}

// untilRead calls do, which only reads, again while there is no answer, as in an election.
func untilRead(ctx context.Context, do func() error) error { return until(ctx, bearable, do) }

// until calls do again after an error that is retryable, for leaderTimeout.
func until(ctx context.Context, retryable func(error) bool, do func() error) error {
	within, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	err := retry.Do(within, retry.Every(retryDelay), retryable, do)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// errNoLeader is a stream that cannot be asked yet.
var errNoLeader = errors.New("the stream has no leader")

func nobodyThere(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, errNoLeader)
}

// settled returns the stream once it has a leader.
func settled(ctx context.Context, js jetstream.JetStream, name string) (s jetstream.Stream, err error) {
	err = untilAnswered(ctx, func() error {
		if s, err = js.Stream(ctx, name); err != nil {
			return err
		}
		if bus.Leaderless(s.CachedInfo()) {
			return errNoLeader
		}
		return nil
	})
	return s, err
}
