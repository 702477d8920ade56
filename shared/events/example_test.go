package events_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// follow prints what happens to the jobs of all endpoints, from where it was
// when it ended last time.
func follow(ctx context.Context, nc *nats.Conn, out io.Writer) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(ctx, streams.Events, streams.Subscriber)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		list, err := events.FromMsg(m)
		if err != nil {
			return err
		}
		for _, e := range list {
			if _, err := fmt.Fprintln(out, e.Kind.Type(), e.Job, e.Attempt, e.Status); err != nil {
				return err
			}
		}
		if err := m.Ack(); err != nil { // until here, a crash brings the events again
			return err
		}
	}
}

// followFrom prints what happens behind the sequence after, which it moves on.
func followFrom(ctx context.Context, nc *nats.Conn, after *uint64, out io.Writer) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	log, err := events.New(nc, js, nil)
	if err != nil {
		return err
	}
	return log.Follow(ctx, *after, func(e events.Event) error {
		if _, err := fmt.Fprintln(out, e.Kind.Type(), e.Job, e.Attempt, e.Status); err != nil {
			return err
		}
		*after = e.Seq // to be kept beside what was made of the event
		return nil
	})
}

// lines keeps what was printed, and calls full once it has most lines.
type lines struct {
	strings.Builder
	most int
	full func()
}

func (l *lines) Write(p []byte) (int, error) {
	n, err := l.Builder.Write(p)
	if strings.Count(l.String(), "\n") >= l.most {
		l.full()
	}
	return n, err
}

func TestTheExamplesDoWhatTheySay(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := streams.ApplySubscriber(t.Context(), b.JS); err != nil {
		t.Fatal(err)
	}
	log, err := events.New(b.NC, b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	var list []events.Event
	var want string
	for i := range 6 {
		id := job.ID(fmt.Sprintf("j%d", i))
		list = append(list, events.Event{Endpoint: "ep", Job: id, Attempt: 1, Kind: events.Completed, Run: 1, Status: job.Completed})
		want += fmt.Sprintf("job.completed %s 1 COMPLETED\n", id)
	}
	for _, e := range list { // each is an entry
		if err := log.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	var after uint64
	for name, f := range map[string]func(context.Context, io.Writer) error{
		"follow":     func(ctx context.Context, out io.Writer) error { return follow(ctx, b.NC, out) },
		"followFrom": func(ctx context.Context, out io.Writer) error { return followFrom(ctx, b.NC, &after, out) },
	} {
		var got string
		for got != want { // it is stopped halfway, and goes on
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			out := &lines{most: 3, full: cancel}
			err := f(ctx, out)
			cancel()
			got += out.String()
			if !strings.HasPrefix(want, got) || out.Len() == 0 {
				t.Fatalf("%s: got %v and\n%swant\n%s", name, err, got, want)
			}
		}
	}
}

// The document shows the examples as they are here.
func TestTheDocumentHasTheExamples(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"// follow prints", "// followFrom prints"} {
		_, rest, _ := strings.Cut(string(source), name)
		body, _, _ := strings.Cut(rest, "\n}\n")
		if want := name + body + "\n}\n"; !strings.Contains(string(document), want) {
			t.Errorf("docs/events.md lacks\n%s", want)
		}
	}
}
