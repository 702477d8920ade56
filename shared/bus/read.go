package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Message is a message as a stream holds it.
type Message struct {
	Subject string
	Seq     uint64
	Time    time.Time
	Server  string // the id of the server that it was read from
	Header  nats.Header
	Data    []byte
}

// Msg is the message as BatchGet returns it.
func (m *Message) Msg() *nats.Msg {
	got := &nats.Msg{Header: maps.Clone(m.Header), Data: m.Data}
	if got.Header == nil {
		got.Header = nats.Header{}
	}
	got.Header.Set(jetstream.SubjectHeader, m.Subject)
	got.Header.Set(jetstream.SequenceHeader, strconv.FormatUint(m.Seq, 10))
	got.Header.Set(jetstream.TimeStampHeaer, m.Time.Format(time.RFC3339Nano))
	return got
}

// LeaderLast reads the last message on subject, which may have wildcards, from the
// stream's leader: in a cluster, a direct get may be answered by a replica that has
// not applied the newest write. It returns ErrNoMessage if nothing matches, and what
// ClientConfig.Missing says if the stream does not exist.
func (c *Client) LeaderLast(ctx context.Context, stream, subject string) (*Message, error) {
	return c.leaderGet(ctx, stream, map[string]any{"last_by_subj": subject})
}

// LastSequence is the sequence of the last message on subject, as LeaderLast reads it; 0 if
// nothing matches.
func (c *Client) LastSequence(ctx context.Context, stream, subject string) (uint64, error) {
	m, err := c.LeaderLast(ctx, stream, subject)
	if errors.Is(err, ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Seq, nil
}

// LeaderNext reads the first message on subject, which may have wildcards, from a
// sequence on, as LeaderLast does.
func (c *Client) LeaderNext(ctx context.Context, stream, subject string, from uint64) (*Message, error) {
	return c.leaderGet(ctx, stream, map[string]any{"seq": from, "next_by_subj": subject})
}

// LeaderAt reads one message by its sequence, as LeaderLast does.
func (c *Client) LeaderAt(ctx context.Context, stream string, seq uint64) (*Message, error) {
	return c.leaderGet(ctx, stream, map[string]any{"seq": seq})
}

func (c *Client) leaderGet(ctx context.Context, stream string, request map[string]any) (*Message, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	return UntilAnswered(ctx, func() (*Message, error) {
		if c.single.Load() {
			if m, err := c.trySingleGet(ctx, stream, body); m != nil || errors.Is(err, ErrNoMessage) {
				return m, err
			}
		}
		return c.tryLeaderGet(ctx, stream, body)
	})
}

// trySingleGet reads by a direct get. A server that is the only one is the leader of
// all streams, and answers that with bytes; a leader's other answer is JSON with
// base64, which costs ten times as much for a message of a megabyte. An error other
// than ErrNoMessage says nothing: the leader is to be asked, which can explain it.
func (c *Client) trySingleGet(ctx context.Context, stream string, body []byte) (*Message, error) {
	server := c.nc.ConnectedServerId()
	got, err := c.requester.ask(ctx, c.nc, &nats.Msg{Subject: DirectGet(stream), Data: body})
	if err != nil {
		return nil, err
	}
	if err := directError(got, stream); err != nil {
		return nil, err
	}
	m, err := messageOf(got)
	if err != nil {
		return nil, err
	}
	m.Server = server
	return m, nil
}

// messageOf is a message that a direct get was answered with, without the server's headers.
func messageOf(got *nats.Msg) (m *Message, err error) {
	takeLast(got.Header, jetstream.StreamHeader)
	m = &Message{Subject: takeLast(got.Header, jetstream.SubjectHeader), Header: got.Header, Data: got.Data}
	seq, stored := takeLast(got.Header, jetstream.SequenceHeader), takeLast(got.Header, jetstream.TimeStampHeaer)
	if m.Seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
		return nil, fmt.Errorf("read sequence of %s: %w", m.Subject, err)
	}
	if m.Time, err = time.Parse(time.RFC3339Nano, stored); err != nil {
		return nil, fmt.Errorf("read time of %s: %w", m.Subject, err)
	}
	return m, nil
}

// directError is nil for a message that a direct get was answered with. It is ErrNoMessage
// for an answer that no more messages match, ErrTooMany if too many subjects do, and
// ErrUnavailable where no server answers. A message of a stream names it, and may have a
// header Status itself. what is read is for the text.
func directError(m *nats.Msg, what string) error {
	if m.Header.Get(jetstream.StreamHeader) != "" {
		return nil
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		return nil
	case "204", "404":
		return ErrNoMessage
	case "413":
		return fmt.Errorf("%w: read %s", ErrTooMany, what)
	case noResponders:
		return fmt.Errorf("%w: read %s", ErrUnavailable, what)
	default:
		return fmt.Errorf("read %s: %s %s", what, status, m.Header.Get("Description"))
	}
}

// lastValue is the last value of a header, "" if it has none: the server adds its own after
// those that the message was stored with.
func lastValue(h nats.Header, key string) string {
	values := h[key]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// takeLast removes the last value of a header and returns it.
func takeLast(h nats.Header, key string) string {
	last := lastValue(h, key)
	if n := len(h[key]); n > 1 {
		h[key] = h[key][:n-1]
	} else {
		delete(h, key)
	}
	return last
}

func (c *Client) tryLeaderGet(ctx context.Context, stream string, body []byte) (*Message, error) {
	server := c.nc.ConnectedServerId()
	answer, err := c.Request(ctx, LeaderGet(stream), body)
	if err != nil {
		return nil, err
	}
	var got struct {
		Error   *APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Time    time.Time `json:"time"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	if got.Error != nil {
		return nil, c.explain(ctx, got.Error, stream, "read "+stream)
	}
	m := &Message{Subject: got.Message.Subject, Seq: got.Message.Seq, Time: got.Message.Time, Server: server, Data: got.Message.Data}
	if len(got.Message.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(got.Message.Header); err != nil {
			return nil, fmt.Errorf("read headers of %s: %w", got.Message.Subject, err)
		}
	}
	return m, nil
}

// DirectNext reads the first message of subject from a sequence on, from any
// replica. It returns ErrNoMessage.
func (c *Client) DirectNext(ctx context.Context, stream, subject string, from uint64) (*nats.Msg, error) {
	return c.directGet(ctx, stream, subject, map[string]any{"seq": from, "next_by_subj": subject})
}

// DirectSince is DirectNext from the first message on that was stored at t or later.
func (c *Client) DirectSince(ctx context.Context, stream, subject string, t time.Time) (*nats.Msg, error) {
	if t = t.UTC(); t.Unix() < 0 {
		t = time.Unix(0, 0).UTC()
	} else if t.Year() > maxYear {
		return nil, ErrNoMessage
	}
	return c.directGet(ctx, stream, subject, map[string]any{"start_time": t, "next_by_subj": subject})
}

// maxYear is the last year that a time in a request can have.
const maxYear = 9999

func (c *Client) directGet(ctx context.Context, stream, subject string, request map[string]any) (*nats.Msg, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", subject, err)
	}
	return UntilAnswered(ctx, func() (*nats.Msg, error) {
		m, err := c.Request(ctx, DirectGet(stream), body)
		if err != nil {
			return nil, err
		}
		return m, directError(m, subject)
	})
}

// StreamState is what a stream holds.
type StreamState struct {
	Messages int64  `json:"messages"`
	Bytes    int64  `json:"bytes"`
	FirstSeq uint64 `json:"first_seq"` //nolint:tagliatelle // the server's name
	LastSeq  uint64 `json:"last_seq"`  //nolint:tagliatelle // as above
	// FirstTime is when the oldest message was stored, by the server's clock.
	FirstTime time.Time `json:"first_ts"` //nolint:tagliatelle // as above
	// Time is when the leader said so, by its clock; zero from StreamStates.
	Time time.Time `json:"-"`
}

// StreamState asks the stream's leader what it holds, until that answers. Without a leader, and
// for ten seconds after its start, another server answers too, with what it has. It returns
// what ClientConfig.Missing says if the stream does not exist.
func (c *Client) StreamState(ctx context.Context, stream string) (StreamState, error) {
	return UntilAnswered(ctx, func() (StreamState, error) {
		var info struct {
			State   StreamState            `json:"state"`
			Time    time.Time              `json:"ts"`
			Cluster *jetstream.ClusterInfo `json:"cluster"`
		}
		if err := c.Query(ctx, stream, StreamInfo(stream), nil, &info); err != nil {
			return StreamState{}, err
		}
		if !isFromLeader(info.Cluster) {
			return StreamState{}, fmt.Errorf("%w: the leader of stream %s does not answer", ErrUnavailable, stream)
		}
		info.State.Time = info.Time
		return info.State, nil
	})
}

// isFromLeader reports whether the leader of a stream said so of it: a server names all
// replicas but itself, and all if there is no leader. A server that is alone says nothing.
func isFromLeader(said *jetstream.ClusterInfo) bool {
	return said == nil || said.Leader != "" && !slices.ContainsFunc(said.Replicas, func(p *jetstream.PeerInfo) bool { return p.Name == said.Leader })
}
