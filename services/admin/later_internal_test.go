package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// queueOf has this many jobs of 4 KB.
func queueOf(t *testing.T, b *testenv.Server, jobs int) {
	t.Helper()
	e, err := endpoint.Endpoint{ID: "ep"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, e); err != nil {
		t.Fatal(err)
	}
	for n := range jobs {
		if _, err := b.JS.Publish(t.Context(), streams.JobSubject("ep", job.Normal, job.ID(strconv.Itoa(n))), []byte(strings.Repeat("x", 4<<10))); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that is away when the chase begins is waited for, and each message
// is read once.
func TestTheChaseSitsAnOutageOut(t *testing.T) {
	t.Parallel()
	const jobs = 700 // several pages
	b := testenv.NewServer(t)
	queueOf(t, b, jobs)
	b.Stop()
	var out bytes.Buffer
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := copyLater(t.Context(), b.NC, b.JS, streams.Jobs("ep"), 0, &out)
		done <- result{n, err}
	}()
	select {
	case got := <-done:
		t.Fatalf("got %d, %v while the server was away", got.n, got.err)
	case <-time.After(2 * time.Second): // longer than the wait for a page
	}
	b.Start()
	if got := <-done; got.n != jobs || got.err != nil {
		t.Fatalf("got %d, %v, want %d", got.n, got.err, jobs)
	}
	seen := uint64(0)
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.Seq != seen+1 {
			t.Fatalf("got %d, %v after %d", m.Seq, err, seen)
		}
		seen++
	}
	if seen != jobs {
		t.Errorf("got %d lines, want %d", seen, jobs)
	}
}

// A chase that comes to no end in its time says so, and what was in its way.
func TestAChaseWithoutAnEndSaysWhy(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	if _, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: streams.Events, Subjects: []string{"events.>"}}); err != nil {
		t.Fatal(err) // without direct gets: nobody answers
	}
	errLate := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errLate)
	defer cancel()
	if _, err := copyLater(ctx, b.NC, b.JS, streams.Events, 0, &bytes.Buffer{}); errors.Is(err, errLate) || err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("got %v, want that nobody answered", err)
	}
}

// A queue that goes with its endpoint, before its copy or between that and what
// was written since, is left out. Another stream that goes is an error.
func TestAQueueThatIsDeletedMeanwhileIsLeftOut(t *testing.T) {
	b := testenv.NewServer(t)
	queueOf(t, b, 3)
	copies := &copying{nc: b.NC, js: b.JS, dir: t.TempDir(), patience: stallTimeout, log: slog.New(slog.DiscardHandler)}
	c := Copy{Name: streams.Jobs("ep")}
	if err := copies.snapshot(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	if err := b.JS.DeleteStream(t.Context(), c.Name); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := copies.copyLater(t.Context(), &c); !errors.Is(err, jetstream.ErrStreamNotFound) || time.Since(began) > catchUpTimeout/2 {
		t.Errorf("behind the copy: got %v after %v, want ErrStreamNotFound at once", err, time.Since(began))
	}
	if !deleted(t.Context(), b.JS, c.Name) {
		t.Error("got that the queue is there")
	}
	copies.dir = t.TempDir()
	if done, err := copies.copyAll(t.Context(), []string{c.Name}); len(done) != 0 || err != nil {
		t.Errorf("before its copy: got %v, %v, want it left out", done, err)
	}
	copies.dir = t.TempDir()
	if _, err := copies.copyAll(t.Context(), []string{streams.Events}); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no queue: got %v, want ErrStreamNotFound", err)
	}
}

// A deadline that was due while a backup was made is brought back with the rest.
func TestWhatAScheduleMadeIsReplayed(t *testing.T) {
	t.Parallel()
	b, other := testenv.NewServer(t), testenv.NewServer(t)
	for _, bus := range []*testenv.Server{b, other} {
		if err := streams.Apply(t.Context(), bus.JS, streams.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	due := streams.DueSubject(0, "ep", "job", 1)
	m := nats.NewMsg(streams.RecordSubject(0, "ep", "job", 1))
	m.Header.Set(jetstream.ScheduleHeader, "@every 1s")
	m.Header.Set(jetstream.ScheduleTargetHeader, due)
	m.Header.Set(jetstream.ScheduleTTLHeader, "1h")
	if _, err := b.JS.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	s, err := b.JS.Stream(t.Context(), streams.Records(0))
	if err != nil {
		t.Fatal(err)
	}
	var made *jetstream.RawStreamMsg
	for late := time.Now().Add(2 * time.Minute); made == nil; <-time.After(10 * time.Millisecond) {
		if made, _ = s.GetLastMsgForSubject(t.Context(), due); time.Now().After(late) {
			t.Fatal("the schedule made nothing")
		}
	}
	line, err := json.Marshal(message{Seq: made.Sequence, Subject: made.Subject, Time: made.Time, Header: made.Header, Body: made.Data})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := replay(t.Context(), other.JS, streams.Records(0), bytes.NewReader(line)); n != 1 || err != nil {
		t.Errorf("got %d messages, %v, want the one that was due", n, err)
	}
}

// serverBehind has a server whose clock is behind that of this machine.
type serverBehind struct {
	jetstream.JetStream
	by time.Duration
}

func (b serverBehind) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := b.JetStream.Stream(ctx, name)
	if err == nil {
		info := s.CachedInfo()
		info.TimeStamp = info.TimeStamp.Add(-b.by)
	}
	return s, err
}

// The machine of who restores may have another time than NATS, whose clock alone counts.
func TestARestoreCountsAgesByTheServersClock(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	const ahead = 2 * time.Hour
	line, err := json.Marshal(message{
		Seq: 1, Subject: streams.RecordSubject(0, "ep", "job", 1), Time: time.Now().Add(-ahead), Header: nats.Header{jetstream.MsgTTLHeader: {"1h"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := replay(t.Context(), serverBehind{b.JS, ahead}, streams.Records(0), bytes.NewReader(line)); n != 1 || err != nil {
		t.Errorf("got %d messages, %v, want the one that was just stored", n, err)
	}
}

func TestWhenWhatWasWrittenSinceACopyIsRead(t *testing.T) {
	for stream, want := range map[string]turn{
		streams.Jobs("ep"):                         turnNow,
		streams.Records(0):                         turnNow,
		streams.Events:                             turnNow,
		streams.Bucket(streams.BucketKeys):         turnNow,
		streams.Webhooks:                           turnWebhooks,
		streams.Undelivered:                        turnWebhooks,
		streams.Deliveries:                         turnWebhooks,
		streams.Bucket(streams.BucketDestinations): turnPauses,
		streams.Payloads(0):                        turnPayloads,
	} {
		if got := turnOf(stream); got != want {
			t.Errorf("%s: got turn %d, want %d", stream, got, want)
		}
	}
}
