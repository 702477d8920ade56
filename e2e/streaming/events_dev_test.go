package streaming

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	eventlog "flightline/shared/events"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// reading is what `flightline env` prints of the way in for readers of events.
type reading struct{ NATSURL, NATSEventsUser, NATSEventsPassword string }

func (r reading) connect(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(r.NATSURL, nats.UserInfo(r.NATSEventsUser, r.NATSEventsPassword),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// next takes the next events off the durable consumer, named "type job".
func (r reading) next(t *testing.T, n int) (got []string) {
	t.Helper()
	js, err := jetstream.New(r.connect(t))
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.Consumer(t.Context(), streams.Events, streams.Subscriber)
	if err != nil {
		t.Fatal(err)
	}
	for len(got) < n {
		m, err := consumer.Next(jetstream.FetchMaxWait(program.Soon))
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		list, err := eventlog.FromMsg(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			got = append(got, e.Kind.Type()+" "+string(e.Job))
		}
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// nextLife takes the events of a job that completes off the durable consumer, and
// returns its id.
func (r reading) nextLife(t *testing.T) (id string) {
	t.Helper()
	got := r.next(t, 3)
	id = strings.TrimPrefix(got[0], "job.queued ")
	if want := []string{"job.queued " + id, "job.started " + id, "job.completed " + id}; !slices.Equal(got, want) {
		t.Errorf("got %q, want the events of one job", got)
	}
	return id
}

// A stranger with the credential of dev reads events over a restart and does
// nothing else, and the command line shows them.
func TestEventsAreReadOverNATSAndFromTheShell(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	d := s.Start("dev")
	d.Line(program.Ready)
	d.Line("first job ")
	if out := s.OK("env"); !strings.Contains(out, "FLIGHTLINE_NATS_EVENTS_USER='events'") || !strings.Contains(out, "FLIGHTLINE_NATS_EVENTS_PASSWORD='") {
		t.Error("env does not tell of the user who may read events")
	}
	var way reading
	program.Decode(t, s.OK("env", "-o", "json"), &way)
	id := way.nextLife(t)
	nc := way.connect(t)
	for _, subject := range []string{
		streams.JobSubject("echo", "n", "forged"), streams.EntrySubject("echo", func(kind string) bool { return kind == "completed" }), bus.StreamPurge(streams.Events),
		bus.DirectGet(streams.Jobs("echo")), bus.LeaderGet(streams.Records(0)), bus.PullNext(streams.Jobs("echo"), "n"), bus.StreamInfo(streams.Jobs("echo")),
	} {
		if m, err := nc.Request(subject, []byte(`{}`), 300*time.Millisecond); err == nil {
			t.Errorf("%s: got the answer %s", subject, m.Data)
		}
	}
	s.OK("runsync", "echo", `{}`)
	d.Stop(program.StopWithin)

	d = s.Start("dev")
	d.Line(program.Ready)
	var again reading
	program.Decode(t, s.OK("env", "-o", "json"), &again)
	if again.NATSEventsPassword != way.NATSEventsPassword {
		t.Error("the password has changed")
	}
	if second := again.nextLife(t); second == id {
		t.Errorf("the events of job %s came again", id)
	}
	out := s.OK("events", "echo", id)
	for _, want := range []string{"TIME", "job.queued", "job.started", "job.completed"} {
		if !strings.Contains(out, want) {
			t.Errorf("events: got %q, want %q in it", out, want)
		}
	}
	follower := s.Start("events", "echo", "--from", "0", "--follow", "--type", "completed", "-o", "json")
	if got := follower.Line(""); !strings.Contains(got, `"type":"job.completed"`) || !strings.Contains(got, id) {
		t.Errorf("events --follow: got %q", got)
	}
	if code, _, errs := s.Run("events", "echo", "nobody"); code != 4 {
		t.Errorf("of no job: got code %d and %q, want 4", code, errs)
	}
}
