package streaming

import (
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

// reading is what `flightline env` tells of the way in for readers of events.
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
	for range n {
		m, err := consumer.Next(jetstream.FetchMaxWait(program.Soon))
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		e, err := eventlog.FromMsg(m)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Kind.Type()+" "+string(e.Job))
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return got
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
	first := way.next(t, 2)
	id := strings.TrimPrefix(first[0], "job.queued ")
	if want := "job.started " + id; first[1] != want {
		t.Errorf("got %q, want queued and started of one job", first)
	}
	nc := way.connect(t)
	for _, subject := range []string{
		streams.JobSubject("echo", "n", "forged"), streams.EventSubject("echo", "completed", "forged", 1, 1), bus.StreamPurge(streams.Events),
		bus.DirectGet(streams.Jobs("echo")), bus.LeaderGet(streams.Records(0)), bus.PullNext(streams.Jobs("echo"), "n"), bus.StreamInfo(streams.Jobs("echo")),
	} {
		if m, err := nc.Request(subject, []byte(`{}`), 300*time.Millisecond); err == nil {
			t.Errorf("%s: got the answer %s", subject, m.Data)
		}
	}
	d.Stop(program.StopWithin)

	d = s.Start("dev")
	d.Line(program.Ready)
	var again reading
	program.Decode(t, s.OK("env", "-o", "json"), &again)
	if again.NATSEventsPassword != way.NATSEventsPassword {
		t.Error("the password has changed")
	}
	if got := again.next(t, 1); got[0] != "job.completed "+id {
		t.Errorf("got %q, want the job's end", got)
	}
	s.OK("runsync", "echo", `{}`)
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
