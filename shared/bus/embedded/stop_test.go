package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus/embedded"
)

// queues is how many work queues the server stops one after the other, 20 ms each.
const queues = 30

// A process that ends does not wait for all its queues. What it leaves behind
// has all that was acknowledged.
func TestStopUntilLeavesAStoreThatIsWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, embedded.Config{Dir: filepath.Join(dir, "first")})
	js := connect(t, first)
	for i := range queues {
		fill(t, js, fmt.Sprintf("Q%d", i))
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := first.StopUntil(ctx); !errors.Is(err, embedded.ErrStopping) {
		t.Fatalf("got %v, want ErrStopping: it is not to wait", err)
	}
	second := leftBy(t, filepath.Join(dir, "first"))
	js = connect(t, start(t, embedded.Config{Dir: second}))
	for i := range queues {
		name := fmt.Sprintf("Q%d", i)
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := s.CachedInfo().State; got.Msgs != 1 || got.LastSeq != 2 {
			t.Errorf("%s: got %d messages up to %d, want the second, which was not acknowledged", name, got.Msgs, got.LastSeq)
		}
		for _, consumer := range consumers() {
			if _, err := s.Consumer(t.Context(), consumer); err != nil {
				t.Errorf("%s of %s: %v", consumer, name, err)
			}
		}
	}
	if err := first.StopUntil(t.Context()); err != nil {
		t.Errorf("without an end: %v", err)
	}
}

// leftBy copies what the end of the process would leave at this moment. A file
// that was renamed in the meantime makes it begin again.
func leftBy(t *testing.T, store string) string {
	t.Helper()
	for {
		left := t.TempDir()
		err := os.CopyFS(left, os.DirFS(store))
		if err == nil {
			return left
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func consumers() []string { return []string{"high", "low"} }

// fill makes a queue with two consumers and two messages, of which one is done.
func fill(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".*"}, Retention: jetstream.WorkQueuePolicy}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, consumer := range consumers() {
		cfg := jetstream.ConsumerConfig{Durable: consumer, FilterSubject: name + "." + consumer, AckPolicy: jetstream.AckExplicitPolicy}
		if _, err := js.CreateConsumer(t.Context(), name, cfg); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := js.Publish(t.Context(), name+".high", []byte("job")); err != nil {
			t.Fatal(err)
		}
	}
	c, err := js.Consumer(t.Context(), name, "high")
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
}
