package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

func TestLastOfEachReadsTheNewestOfAllSubjects(t *testing.T) {
	b := testenv.NewServer(t)
	if _, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EACH", Subjects: []string{"each.>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), 8<<10) // so that one answer is not enough
	put := func(subject string, data []byte) {
		if _, err := b.JS.Publish(t.Context(), subject, data); err != nil {
			t.Fatal(err)
		}
	}
	const n = bus.MaxMatches + 200
	for i := range n {
		put(fmt.Sprintf("each.many.%d", i), []byte("old"))
		put(fmt.Sprintf("each.many.%d", i), large)
	}
	put("each.one.1", []byte("old"))
	put("each.one.1", []byte("new"))
	put("each.one.2", nil)
	for filter, want := range map[string]int{"each.>": n + 2, "each.many.*": n, "each.one.*": 2, "each.one.1": 1, "each.none.>": 0} {
		got, err := bus.Bind(b.NC).LastOfEach(t.Context(), "EACH", filter)
		if err != nil || len(got) != want {
			t.Errorf("%s: got %d messages, %v, want %d", filter, len(got), err, want)
		}
		for _, m := range got {
			if string(m.Data) == "old" || m.Seq == 0 || time.Since(m.Time) > time.Hour || m.Subject == "" {
				t.Errorf("%s: got %+v", filter, m)
			}
		}
	}
}

func TestLastOfEachIsNotBelievedWithoutTheNewestWrites(t *testing.T) {
	b := testenv.NewServer(t)
	c := newReader(t, b.NC, b.JS, 1)
	for filter, want := range map[string]int{"read.a.*": 2, "read.b.*": 0} {
		var got []*nats.Msg
		testenv.Retry(t, func() (err error) {
			got, err = c.TryLastOfEach(t.Context(), "READ", filter, 3)
			return err
		})
		if len(got) != want {
			t.Errorf("%s: got %d, want %d", filter, len(got), want)
		}
	}
	if got, err := c.TryLastOfEach(t.Context(), "READ", "read.a.*", 4); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("of a replica that lags: got %d, %v", len(got), err)
	}
}

func TestLastOfEachWithoutAStream(t *testing.T) {
	b := testenv.NewServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if got, err := bus.Bind(b.NC).LastOfEach(ctx, "NONE", ">"); err == nil || ctx.Err() != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestLastOfEachOfACluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.NewCluster(t)
	nc := cluster.Connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EACH", Subjects: []string{"each.>"}, AllowDirect: true, Replicas: 3, MaxMsgsPerSubject: 1}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 { // what was acknowledged just before is there, whichever replica answers
		if _, err := js.Publish(t.Context(), fmt.Sprintf("each.%d", i), nil); err != nil {
			t.Fatal(err)
		}
		if got, err := bus.Bind(nc).LastOfEach(t.Context(), "EACH", "each.*"); err != nil || len(got) != i+1 {
			t.Fatalf("got %d, %v, want %d", len(got), err, i+1)
		}
	}
}

// The pages of a list are of different moments. If the second is of an earlier one, a
// subject that was written between the two is on neither.
func TestLastOfEachIsNotBelievedIfItsPagesGoBack(t *testing.T) {
	for upTo, want := range map[string]error{"900": nil, "800": bus.ErrUnavailable} {
		b := testenv.NewServer(t)
		c := bus.Bind(b.NC)
		testenv.Handle(t, b.NC, bus.DirectGet("EACH"), func(m *nats.Msg) {
			end := nats.NewMsg(m.Reply)
			end.Header.Set("Status", "204")
			end.Header.Set("Nats-UpTo-Sequence", upTo)
			if bytes.Contains(m.Data, []byte(`"seq":1}`)) {
				first := nats.NewMsg(m.Reply)
				first.Header.Set(jetstream.StreamHeader, "EACH")
				first.Header.Set(jetstream.SubjectHeader, "each.1")
				first.Header.Set(jetstream.SequenceHeader, "5")
				first.Header.Set(jetstream.TimeStampHeaer, time.Now().Format(time.RFC3339Nano))
				first.Header.Set(bus.PendingHeader, "1")
				_ = m.RespondMsg(first)
				end.Header.Set("Nats-UpTo-Sequence", "900")
			}
			_ = m.RespondMsg(end)
		})
		if got, err := c.TryLastOfEach(t.Context(), "EACH", "each.*", 700); !errors.Is(err, want) {
			t.Errorf("after a page up to 900 one up to %s: got %d, %v, want %v", upTo, len(got), err, want)
		}
	}
}

// What is written while the pages are read comes with more than one.
func TestLastOfGivesTheNewestOfASubjectOnce(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	if _, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EACH", Subjects: []string{"each.>"}, AllowDirect: true, MaxMsgsPerSubject: 1}); err != nil {
		t.Fatal(err)
	}
	const n = 500
	large := bytes.Repeat([]byte("x"), 32<<10) // so that there are four pages
	testenv.KeepWriting(t, n, func(ctx context.Context, i int) error {
		_, err := b.JS.Publish(ctx, fmt.Sprintf("each.%d", i), large)
		return err
	})
	for range 20 {
		var got []*nats.Msg
		testenv.Retry(t, func() (err error) {
			got, err = bus.Bind(b.NC).LastOf(t.Context(), "EACH", []string{"each.*"})
			return err
		})
		if len(got) != n {
			t.Fatalf("got %d messages, want %d", len(got), n)
		}
	}
}

// A message that the server cannot read ends its answer, with a status that looks like
// that of a list without more messages.
func TestAListWithADamagedMessageIsAnError(t *testing.T) {
	t.Parallel()
	b := testenv.NewServer(t)
	if _, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EACH", Subjects: []string{"each.*"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := b.JS.Publish(t.Context(), fmt.Sprintf("each.%d", i), fmt.Appendf(nil, "message %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	b.Stop()
	file := filepath.Join(b.StreamDir("EACH"), "msgs", "1.blk")
	block, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(block, []byte("message 2"), []byte("massage 2"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Start()
	testenv.Retry(t, func() error { _, err := b.JS.Stream(t.Context(), "EACH"); return err })
	for _, subjects := range [][]string{{"each.*"}, {"each.2"}} {
		within, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if got, err := bus.Bind(b.NC).LastOf(within, "EACH", subjects); !errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("last of %s: got %d messages, %v, want ErrUnavailable", subjects, len(got), err)
		}
		cancel()
		if got, err := bus.Bind(b.NC).TryLastOfEach(t.Context(), "EACH", subjects[0], 0); !errors.Is(err, bus.ErrUnavailable) || !strings.Contains(err.Error(), "cannot read a message") {
			t.Errorf("last of each of %s: got %d messages, %v, want why", subjects, len(got), err)
		}
	}
	if got, err := bus.Bind(b.NC).LastOf(t.Context(), "EACH", []string{"each.0", "each.4", "each.9"}); err != nil || len(got) != 2 {
		t.Errorf("others: got %d, %v, want 2", len(got), err)
	}
}
